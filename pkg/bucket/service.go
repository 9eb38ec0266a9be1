package bucket

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// encryption is the algorithm, with the key after it if the class names one.
func (e *Engine) encryption(name string, spec params.Bucket) option {
	const kms = string(types.ServerSideEncryptionAwsKms)
	want := spec.Encryption
	if spec.KMSKey != "" {
		want = kms + " " + spec.KMSKey
	}
	return option{
		name: "encryption",
		want: want,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: &name})
			found, err := has(err, "GetBucketEncryption")
			if !found {
				return "", err
			}
			if have.ServerSideEncryptionConfiguration == nil {
				return blank, nil
			}
			for _, r := range have.ServerSideEncryptionConfiguration.Rules {
				if d := r.ApplyServerSideEncryptionByDefault; d != nil {
					return strings.TrimSpace(string(d.SSEAlgorithm) + " " + aws.ToString(d.KMSMasterKeyID)), nil
				}
			}
			return blank, nil
		},
		write: func(ctx context.Context) error {
			algorithm, key, _ := strings.Cut(want, " ")
			by := &types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryption(algorithm)}
			if key != "" {
				by.KMSMasterKeyID = &key
			}
			_, err := e.s3.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{Bucket: &name, ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{
				Rules: []types.ServerSideEncryptionRule{{ApplyServerSideEncryptionByDefault: by}},
			}})
			return classify(err, "PutBucketEncryption")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeleteBucketEncryption(ctx, &s3.DeleteBucketEncryptionInput{Bucket: &name})
			return removed(err, "DeleteBucketEncryption")
		},
	}
}

// website is the two documents of a web site as a list in JSON.
func (e *Engine) website(name string, spec params.Bucket) option {
	text := func(index, failure string) string {
		out, _ := json.Marshal([]string{index, failure}) // plain data
		return string(out)
	}
	o := option{
		name: "website",
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketWebsite(ctx, &s3.GetBucketWebsiteInput{Bucket: &name})
			found, err := has(err, "GetBucketWebsite")
			if !found {
				return "", err
			}
			if have.IndexDocument == nil {
				return blank, nil
			}
			failure := ""
			if have.ErrorDocument != nil {
				failure = aws.ToString(have.ErrorDocument.Key)
			}
			return text(aws.ToString(have.IndexDocument.Suffix), failure), nil
		},
		write: func(ctx context.Context) error {
			site := &types.WebsiteConfiguration{IndexDocument: &types.IndexDocument{Suffix: &spec.WebsiteIndex}}
			if spec.WebsiteError != "" {
				site.ErrorDocument = &types.ErrorDocument{Key: &spec.WebsiteError}
			}
			_, err := e.s3.PutBucketWebsite(ctx, &s3.PutBucketWebsiteInput{Bucket: &name, WebsiteConfiguration: site})
			return classify(err, "PutBucketWebsite")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeleteBucketWebsite(ctx, &s3.DeleteBucketWebsiteInput{Bucket: &name})
			return removed(err, "DeleteBucketWebsite")
		},
	}
	if spec.WebsiteIndex != "" {
		o.want = text(spec.WebsiteIndex, spec.WebsiteError)
	}
	return o
}

func (e *Engine) requestPayer(name string, spec params.Bucket) option {
	put := func(ctx context.Context, who types.Payer) error {
		_, err := e.s3.PutBucketRequestPayment(ctx, &s3.PutBucketRequestPaymentInput{
			Bucket: &name, RequestPaymentConfiguration: &types.RequestPaymentConfiguration{Payer: who},
		})
		return classify(err, "PutBucketRequestPayment")
	}
	return option{
		name: "requestPayer",
		want: spec.RequestPayer,
		none: string(types.PayerBucketOwner),
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketRequestPayment(ctx, &s3.GetBucketRequestPaymentInput{Bucket: &name})
			if err != nil {
				return "", classify(err, "GetBucketRequestPayment")
			}
			return string(have.Payer), nil
		},
		write:  func(ctx context.Context) error { return put(ctx, types.Payer(spec.RequestPayer)) },
		remove: func(ctx context.Context) error { return put(ctx, types.PayerBucketOwner) },
	}
}
