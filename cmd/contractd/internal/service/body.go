package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
)

// maxBody is far above the largest meaningful request.
const maxBody = 64 << 10

// checkBody refuses a body that the generated decoder would read too kindly:
// unknown fields, which are mostly typing errors and could silently widen a
// key; names in another case; trailing text. It reports all faults at once.
func checkBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shape := bodyOf(r.Pattern)
		if shape == nil {
			next.ServeHTTP(w, r)
			return
		}
		data, err := readBody(w, r)
		if err == nil {
			err = checkJSON(data, shape)
		}
		if err != nil {
			writeError(w, r, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		next.ServeHTTP(w, r)
	})
}

// bodyOf returns the type of the body that goes with a route, nil without one.
func bodyOf(pattern string) reflect.Type {
	switch pattern {
	case "PUT /v1/contracts/{contractName}":
		return reflect.TypeFor[api.ContractSpec]()
	case "PUT /v1/contracts/{contractName}/keys/{keyName}":
		return reflect.TypeFor[api.KeyRequest]()
	case "PUT /v1/contracts/{contractName}/buckets/{bucketName}/quota":
		return reflect.TypeFor[api.BucketQuota]()
	}
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newProblem(http.StatusUnsupportedMediaType, api.InvalidArgument,
			"The body must be JSON, with the header Content-Type: application/json.")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, newProblem(http.StatusRequestEntityTooLarge, api.InvalidArgument, "The body is larger than %d bytes.", maxBody)
	}
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, api.InvalidArgument, "The body could not be read to its end.")
	}
	return data, nil
}

func checkJSON(data []byte, shape reflect.Type) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more text behind the object")
		}
	}
	if err != nil {
		return newProblem(http.StatusBadRequest, api.InvalidArgument, "The body is not one JSON object: %v.", err)
	}
	var found faults
	found.compare(value, shape, "")
	return found.problem(http.StatusBadRequest, api.InvalidArgument)
}

// compare notes where a JSON value cannot be a value of the type. It knows the
// kinds that the request types are made of.
func (f *faults) compare(value any, shape reflect.Type, pointer string) {
	switch {
	case shape.Kind() == reflect.Pointer:
		if value != nil { // null is the same as absent
			f.compare(value, shape.Elem(), pointer)
		}
	case shape == reflect.TypeFor[time.Time]():
		text, _ := value.(string)
		if new(time.Time).UnmarshalText([]byte(text)) != nil {
			f.add(pointer, "must be a time like 2006-01-02T15:04:05Z")
		}
	case shape.Kind() == reflect.Struct:
		f.compareObject(value, shape, pointer)
	case shape.Kind() == reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			f.add(pointer, "must be a list")
		}
		for i, item := range list {
			f.compare(item, shape.Elem(), child(pointer, i))
		}
	case shape.Kind() == reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			f.add(pointer, "must be an object")
		}
		for _, name := range sortedKeys(object) {
			f.compare(object[name], shape.Elem(), child(pointer, name))
		}
	case shape.Kind() == reflect.Int64:
		number, ok := value.(json.Number)
		if !ok {
			f.add(pointer, "must be a whole number")
		} else if _, err := number.Int64(); err != nil {
			f.add(pointer, "must be a whole number that fits into 64 bits")
		}
	case shape.Kind() == reflect.String:
		if _, ok := value.(string); !ok {
			f.add(pointer, "must be a text")
		}
	}
}

func (f *faults) compareObject(value any, shape reflect.Type, pointer string) {
	object, ok := value.(map[string]any)
	if !ok {
		f.add(pointer, "must be an object")
		return
	}
	fields := reflect.VisibleFields(shape)
	for _, name := range sortedKeys(object) {
		i := slices.IndexFunc(fields, func(field reflect.StructField) bool {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return tag == name
		})
		if i < 0 {
			f.add(child(pointer, name), "is not a known field")
			continue
		}
		f.compare(object[name], fields[i].Type, child(pointer, name))
	}
}
