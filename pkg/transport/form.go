package transport

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// API is what a service has to answer as. A login page in front of it, or
// whatever else is at its address, says 200 to everything.
type API string

// The APIs.
const (
	S3   API = "an S3 API"
	IAM  API = "an IAM API"
	JSON API = "an API that speaks JSON"
)

// Speaking returns a client that takes no answer for success which is not in the
// API's form, over one that [Bounded] has made.
func Speaking(api API, c *http.Client) *http.Client {
	out := *c
	if out.Transport == nil { // http.DefaultClient
		out = *Bounded(http.DefaultTransport) //nolint:forbidigo // it is bounded here
	}
	out.Transport = over{out.Transport, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || answer.StatusCode >= 300 {
			return answer, err
		}
		answer.Request = r
		return whole(answer, func(body []byte) error {
			if api.fits(r, answer.StatusCode, body) {
				return nil
			}
			return final(fault.Unavailable, nil, "was answered, but not by %s; check the backend's address, and what stands in front of it", api)
		})
	}}
	return &out
}

// fits reports whether an answer that claims success is in the API's form. More
// is not asked of it: services have their ways.
func (api API) fits(r *http.Request, status int, body []byte) bool {
	body = bytes.TrimLeft(body, "\ufeff \t\r\n")
	isJSON := len(body) > 0 && (body[0] == '{' || body[0] == '[')
	reads := r.Method == http.MethodGet || r.Method == http.MethodPost // and is owed a document
	switch {
	case api == IAM: // each action has a document of its own, also one that takes something away
		return strings.HasSuffix(root(body), "Response") && root(body) != "ErrorResponse"
	case api == JSON:
		return len(body) == 0 || isJSON
	case r.Method == http.MethodDelete && r.URL.RawQuery == "": // of a bucket
		return status == http.StatusNoContent
	case len(body) == 0:
		return !reads
	case isJSON:
		return body[0] == '{' && reads && r.URL.Query().Has("policy")
	}
	return !slices.Contains([]string{"", "html", "Error"}, root(body))
}

// root is the name of a document's first element, in lower case for a web page;
// "" if it is no XML.
func root(document []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(document))
	for {
		token, err := decoder.RawToken()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case xml.StartElement:
			if strings.EqualFold(t.Name.Local, "html") {
				return "html"
			}
			return t.Name.Local
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 { // text before any element
				return ""
			}
		}
	}
}
