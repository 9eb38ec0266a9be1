package fault_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	sent := func(err error) error { return &url.Error{Op: "Get", URL: "http://10.0.0.1:4242/", Err: err} }
	refused := fault.New(fault.FailedPrecondition, "was answered with a redirect")
	refused.Final = true
	for name, c := range map[string]struct {
		err        error
		kind       fault.Kind
		text       string
		unanswered bool
	}{
		"silence":           {sent(context.DeadlineExceeded), fault.Unavailable, "the storage does not answer PutBucket (timeout)", true},
		"given up":          {sent(context.Canceled), fault.Canceled, "the call PutBucket to the storage was given up", true},
		"the transport's":   {sent(refused), fault.FailedPrecondition, "the call PutBucket to the storage was answered with a redirect", false},
		"a passed deadline": {context.DeadlineExceeded, fault.Unavailable, "the storage does not answer PutBucket (timeout)", true},
	} {
		got := fault.NoAnswer(c.err, "PutBucket", "the storage")
		if got.Kind != c.kind || got.Error() != c.text || got.Final != (name == "the transport's") || got.RetryableError() == got.Final {
			t.Errorf("%s: %s: %s", name, got.Kind, got)
		}
		if fault.Unanswered(got) != c.unanswered || fault.Unanswered(fault.In(got, "team")) != c.unanswered {
			t.Errorf("%s: unanswered is %t", name, !c.unanswered)
		}
	}
}
