package bucket

import "testing"

func TestWithoutOpen(t *testing.T) {
	t.Parallel()
	const deny = `{"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject"}`
	for name, c := range map[string]struct {
		policy, rest string
		open         bool
	}{
		"everybody":              {`{"Statement":[{"Effect":"Allow","Principal":"*"}]}`, "", true},
		"a single statement":     {`{"Statement":{"Effect":"Allow","Principal":"*"}}`, "", true},
		"by kind":                {`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"*"}}]}`, "", true},
		"in a list":              {`{"Statement":[{"Effect":"Allow","Principal":{"AWS":["C1","*"]}}]}`, "", true},
		"everybody but":          {`{"Statement":[{"Effect":"Allow","NotPrincipal":{"AWS":"C1"}}]}`, "", true},
		"others stay as written": {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*"},` + deny + `],"Own":1.50}`, `{"Own":1.50,"Statement":[` + deny + `],"Version":"2012-10-17"}`, true},
		"somebody":               {`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"C1"}}]}`, "", false},
		"nobody":                 {`{"Statement":[` + deny + `]}`, "", false},
		"under a condition":      {`{"Statement":[{"Effect":"Allow","Principal":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}]}`, "", false},
		"no statement":           {`{}`, "", false},
		"not JSON":               {`Statement`, "", false},
	} {
		want := c.rest
		if !c.open {
			want = c.policy
		}
		if rest, open := withoutOpen(c.policy); rest != want || open != c.open {
			t.Errorf("%s: %q, %v; want %q, %v", name, rest, open, want, c.open)
		}
	}
}

func FuzzWithoutOpen(f *testing.F) {
	f.Add(`{"Statement":[{"Effect":"Allow","Principal":"*"},{"Effect":"Deny"}]}`)
	f.Add(`{"Statement":{"Effect":"Allow","Principal":{"AWS":["*"]}}}`)
	f.Fuzz(func(t *testing.T, policy string) {
		rest, open := withoutOpen(policy)
		if again, still := withoutOpen(rest); still || again != rest {
			t.Errorf("%q leaves %q, which is still open", policy, rest)
		}
		if !open && rest != policy {
			t.Errorf("%q was not open and became %q", policy, rest)
		}
	})
}
