package sanity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

// The codes that any RPC may be answered with. UNKNOWN is judged apart.
var anyRPC = []codes.Code{
	codes.OK, codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.PermissionDenied, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.Aborted, codes.Internal, codes.Unavailable, codes.DataLoss, codes.Unauthenticated,
}

// allowedCodes is what the specification leaves each RPC, beside anyRPC.
var allowedCodes = map[Version]map[string][]codes.Code{
	V1Alpha1: {
		"DriverGetInfo":      nil,
		"DriverCreateBucket": {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.OutOfRange},
		// "Similarly DeleteBucket, GrantBucketAccess, RevokeBucketAccess will
		// behave the same" (spec.md:368): ALREADY_EXISTS is theirs as well. What
		// the sidecar makes of it in a grant is a check of its own.
		"DriverDeleteBucket":       {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Unimplemented},
		"DriverGrantBucketAccess":  {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Unimplemented},
		"DriverRevokeBucketAccess": {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Unimplemented},
	},
	V1Alpha2: {
		"DriverGetInfo":           nil,
		"DriverCreateBucket":      {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverGetExistingBucket": {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		// Which not every generation of v1alpha2 has.
		"DriverGetBucket":        {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Unimplemented},
		"DriverGenerateBucketId": {codes.InvalidArgument, codes.Unimplemented},
		"DriverDeleteBucket":     {codes.InvalidArgument},
		// OUT_OF_RANGE if several buckets are asked for, see codesAllowed.
		"DriverGrantBucketAccess":  {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverRevokeBucketAccess": {codes.InvalidArgument},
	},
}

// faults quotes the calls that break a rule, each kind once.
func (s *session) faults(calls []call, why string, broken func(call) bool) error {
	var errs []error
	seen := map[string]bool{}
	more := 0
	for _, c := range calls {
		if !broken(c) {
			continue
		}
		kind := c.method + c.code.String()
		if seen[kind] {
			more++
			continue
		}
		seen[kind] = true
		errs = append(errs, fmt.Errorf("%s%s", c, why))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d calls more of the same kinds", more))
	}
	return errors.Join(errs...)
}

func codesAllowed(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "; the RPC has no such code", func(c call) bool {
		if c.code == codes.OutOfRange && s.version == V1Alpha2 && c.method == "DriverGrantBucketAccess" && c.buckets > 1 {
			return false
		}
		return !slices.Contains(anyRPC, c.code) && !slices.Contains(allowedCodes[s.version][c.method], c.code)
	})
}

func noUnknown(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "", func(c call) bool { return c.code == codes.Unknown })
}

func grantNeverExists(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "; the sidecar crashes", func(c call) bool {
		return c.method == "DriverGrantBucketAccess" && c.code == codes.AlreadyExists
	})
}

func detailsEmpty(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "; its details are not empty", func(c call) bool { return c.details > 0 })
}

func messagesReadable(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "; its message is empty or no text", func(c call) bool {
		return c.code != codes.OK && !readable(c.message)
	})
}

func readable(s string) bool {
	return strings.TrimSpace(s) != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t'
	})
}

func messagesKeepSecrets(_ context.Context, s *session) error {
	return s.faults(s.recorder.leaks(), "", func(call) bool { return true })
}

// messagesStable compares what the same request was refused with. Codes that
// pass on their own are left out.
func messagesStable(_ context.Context, s *session) error {
	first := map[string]string{}
	return s.faults(s.recorder.answered(), "; the same call was refused in other words before", func(c call) bool {
		switch c.code {
		case codes.OK, codes.Aborted, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
			return false
		}
		key := fmt.Sprint(c.method, c.code, c.bytes)
		before, again := first[key]
		first[key] = c.message
		return again && before != c.message
	})
}

func callsAnswered(_ context.Context, s *session) error {
	var errs []error
	for _, c := range s.recorder.unanswered() {
		errs = append(errs, &unanswered{c, s.cfg.CallTimeout})
	}
	return errors.Join(errs...)
}

func stillAnswers(ctx context.Context, s *session) error {
	return named("DriverGetInfo, in the end", s.patiently(ctx, func(ctx context.Context) error {
		_, err := s.api.info(ctx)
		return err
	}))
}

func cleansUp(_ context.Context, s *session) error {
	var errs []error
	for _, l := range s.leftovers {
		errs = append(errs, errors.New(l))
	}
	return errors.Join(errs...)
}
