package contracttest

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// IAMOperator changes keys with the IAM API at url, as the administrator of the
// account whose key this is.
func IAMOperator(url, accessKeyID, secretKey string) *Operator {
	api := iam.New(iam.Options{
		BaseEndpoint: &url, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secretKey}, nil
		}),
	})
	user := func(k Key) *string { return aws.String(k.Contract + "." + k.Slot) }
	inline := aws.String("contract-cosi-driver")
	return &Operator{
		Stop: map[string]func(*testing.T, Key){"by its status": func(t *testing.T, k Key) {
			_, err := api.UpdateAccessKey(t.Context(), &iam.UpdateAccessKeyInput{UserName: user(k), AccessKeyId: &k.AccessKeyID, Status: types.StatusTypeInactive})
			done(t, err)
		}},
		Widen: func(t *testing.T, k Key) {
			_, err := api.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: user(k), PolicyName: inline,
				PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::*"}}`)})
			done(t, err)
		},
		Drop: func(t *testing.T, k Key) {
			_, err := api.DeleteUserPolicy(t.Context(), &iam.DeleteUserPolicyInput{UserName: user(k), PolicyName: inline})
			done(t, err)
		},
	}
}

func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
