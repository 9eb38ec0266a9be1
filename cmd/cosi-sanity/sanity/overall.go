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
		"DriverGetInfo":                nil,
		"DriverCreateBucket":           {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverGetExistingBucket":      {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverGetBucket":              {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverGenerateBucketId":       {codes.InvalidArgument, codes.AlreadyExists},
		"DriverGenerateBucketAccessId": {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		// NOT_FOUND is judged where it counts, B07 and R01.
		"DriverDeleteBucket": {codes.InvalidArgument, codes.NotFound},
		// OUT_OF_RANGE if several buckets are asked for, see codesAllowed.
		"DriverGrantBucketAccess":  {codes.InvalidArgument, codes.NotFound, codes.AlreadyExists},
		"DriverRevokeBucketAccess": {codes.InvalidArgument, codes.NotFound},
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
		if c.code == codes.OutOfRange && s.Version == V1Alpha2 && (c.method == "DriverGrantBucketAccess" || c.method == "DriverGenerateBucketAccessId") && c.buckets > 1 {
			return false
		}
		return !slices.Contains(anyRPC, c.code) && !slices.Contains(allowedCodes[s.Version][c.method], c.code)
	})
}

func noUnknown(_ context.Context, s *session) error {
	return s.faults(s.recorder.answered(), "", func(c call) bool { return c.code == codes.Unknown })
}

func grantNeverExists(_ context.Context, s *session) error {
	for _, number := range []string{"A05", "A08"} {
		if r := s.verdicts[number]; r.Verdict == Failed && strings.Contains(r.Message, codes.AlreadyExists.String()) {
			return see(number)
		}
	}
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
	for _, c := range s.recorder.which(func(c call) bool { return c.hung }) {
		errs = append(errs, &unanswered{c, s.cfg.CallTimeout})
	}
	return errors.Join(errs...)
}

func neverCrashes(_ context.Context, s *session) error {
	lost := s.recorder.which(func(c call) bool { return c.crashed })
	if len(lost) == 0 {
		return nil
	}
	const most = 5
	errs := []error{fmt.Errorf("the connection was lost in %d calls", len(lost))}
	told := map[string]bool{} // a call is repeated when the driver is back
	for _, c := range lost {
		if what := c.method + c.request; !told[what] && len(told) < most {
			told[what] = true
			errs = append(errs, fmt.Errorf("%s(%s): %s", c.method, c.request, shorten(c.message)))
		}
	}
	return errors.Join(errs...)
}

func stillAnswers(ctx context.Context, s *session) error {
	if s.mute {
		return see("G08")
	}
	return named("DriverGetInfo, in the end", s.patiently(ctx, func(ctx context.Context) error {
		_, err := s.api.info(ctx)
		return err
	}))
}

// note is what a check that has passed has to say.
type note string

func (n note) Error() string { return string(n) }

func cleansUp(ctx context.Context, s *session) error {
	var errs []error
	for _, l := range s.leftovers {
		errs = append(errs, errors.New(l))
	}
	if err := s.compareInventories(ctx); err != nil {
		errs = append(errs, err)
	}
	for _, number := range []string{"B16", "A01", "R04", "G09"} { // of which this is only what comes of it
		if len(errs) > 0 && s.verdicts[number].Verdict == Failed {
			return see(number)
		}
	}
	switch {
	case len(errs) > 0:
		return errors.Join(errs...)
	case s.spared > 0:
		return note(fmt.Sprintf("%d buckets were not deleted, because their id was answered for two names", s.spared))
	case s.uncertain > 0 && s.cfg.Inventory == "":
		return note(fmt.Sprintf("%d calls were answered with an error that leaves open whether something was made; --inventory would tell", s.uncertain))
	}
	return nil
}
