package fake

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

var credential = regexp.MustCompile(`Credential=([^/]+)/`)

// s3 serves objects to anyone who names a key that opens their bucket. It does
// not look at the signature: the suite's requests are signed by Amazon's SDK.
func (d *Driver) s3() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		bucketName, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		match := credential.FindStringSubmatch(r.Header.Get("Authorization"))
		if match == nil || d.keys[match[1]] == nil || d.keys[match[1]].dead {
			refuse(w, http.StatusForbidden, "InvalidAccessKeyId")
			return
		}
		mode := d.keys[match[1]].modes[bucketName]
		reads := mode == readWrite || mode == readOnly
		writes := mode == readWrite || mode == writeOnly
		if d.has(NoModes) && mode != 0 || d.has(MasterKeys) {
			reads, writes = true, true
		}
		var b *bucket
		for _, candidate := range d.buckets {
			if candidate.s3Name == bucketName {
				b = candidate
			}
		}
		reading := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case reading && !reads || !reading && !writes:
			refuse(w, http.StatusForbidden, "AccessDenied")
		case b == nil:
			refuse(w, http.StatusNotFound, "NoSuchBucket")
		case object == "":
			_, _ = fmt.Fprint(w, `<ListBucketResult>`)
			for name := range b.objects {
				_, _ = fmt.Fprintf(w, `<Contents><Key>%s</Key></Contents>`, name)
			}
			_, _ = fmt.Fprint(w, `</ListBucketResult>`)
		case r.Method == http.MethodPut:
			b.objects[object] = string(body)
		case r.Method == http.MethodDelete:
			delete(b.objects, object)
			w.WriteHeader(http.StatusNoContent)
		default:
			text, ok := b.objects[object]
			if !ok {
				refuse(w, http.StatusNotFound, "NoSuchKey")
				return
			}
			_, _ = io.WriteString(w, text)
		}
	})
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code><Message>no</Message></Error>`, code)
}
