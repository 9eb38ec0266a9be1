package iam

import "testing"

// AWS tells a policy escaped for a URL; others tell it as it was written.
func TestUnescaped(t *testing.T) {
	t.Parallel()
	const written = `{"Version":"2012-10-17","Statement":[{"Resource":"a+b/100%25 *"}]}`
	for _, told := range []string{
		written,
		"%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Resource%22%3A%22a%2Bb%2F100%2525%20%2A%22%7D%5D%7D",
	} {
		if got := unescaped(told); got != written {
			t.Errorf("%s is read as %s", told, got)
		}
	}
}
