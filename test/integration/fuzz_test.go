package integration

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/code"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha2"
)

// monkey sends well-formed messages without sense through the real server, and
// keeps what the driver said it has made.
type monkey struct {
	*env
	contract string
	methods  []form
	tables   map[string]code.Table

	mu       sync.Mutex
	buckets  []string
	accounts []string
	seen     map[codes.Code]int
}

// form is a method with the messages that it has in some version and generation.
// They are the generated messages, as the server has them. A dynamicpb message
// is decoded by other code, and its Unmarshal panics on the bytes of
// keyTwiceInOneEntry.
type form struct {
	protoreflect.MethodDescriptor
	input, output protoreflect.MessageType
}

func newMonkey(t testing.TB) *monkey {
	m := &monkey{env: newEnv(t, "onDemand:\n  backend: main\n  adoptBuckets: true\n  onLastBucket: cancel\n"), contract: newContract(), tables: v1alpha1.Tables(), seen: map[codes.Code]int{}}
	maps.Copy(m.tables, v1alpha2.Tables())
	for _, file := range []protoreflect.FileDescriptor{(&cosiproto.DriverGetInfoRequest{}).ProtoReflect().Descriptor().ParentFile(), cosipb.File_cosi_v1alpha2_proto} {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				method := file.Services().Get(i).Methods().Get(j)
				input, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
				must(t, err)
				output, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
				must(t, err)
				m.methods = append(m.methods, form{method, input, output})
			}
		}
	}
	service := cosipb.File_cosi_v1alpha2_proto.Services().ByName("Provisioner").Methods()
	m.methods = append(m.methods,
		form{service.ByName("DriverGrantBucketAccess"), (&cosipb.DriverGrantBucketAccessRequestB2{}).ProtoReflect().Type(), (&cosipb.DriverGrantBucketAccessResponse{}).ProtoReflect().Type()},
		form{service.ByName("DriverCreateBucket"), (&cosipb.DriverCreateBucketRequest{}).ProtoReflect().Type(), (&cosipb.DriverCreateBucketResponseC1{}).ProtoReflect().Type()},
	)
	return m
}

// choices turns a fuzzer's bytes into decisions; when they are used up all
// further ones are 0.
type choices []byte

func (c *choices) next(n int) int {
	if len(*c) == 0 || n <= 1 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// rest is a text made of the bytes themselves.
func (c *choices) rest() string {
	n := min(c.next(256), len(*c))
	text := strings.ToValidUTF8(string((*c)[:n]), "�") // anything else is not a protobuf string
	*c = (*c)[n:]
	return text
}

// text is most often one that makes sense in its field.
func (m *monkey) text(c *choices, method, field protoreflect.Name) string {
	id := "main." + m.contract + "."
	fits := map[protoreflect.Name][]string{
		"name":               {m.contract + "-a", m.contract + "-b"},
		"account_name":       {"ba-1", "ba-2"},
		"bucket_id":          {id + m.contract + "-a", id + m.contract + "-b"},
		"existing_bucket_id": {id + m.contract + "-a", id + m.contract + "-b"},
		"account_id":         {id + "ba-1", id + "ba-2"},
		"account":            {"ba-1", id + "ba-2"},
	}[field]
	if field == "name" && method == "DriverGrantBucketAccess" {
		fits = []string{"ba-1", "ba-2"}
	}
	if n := c.next(16); n < 13 && len(fits) > 0 {
		return fits[n%len(fits)]
	}
	odd := []string{"", "main", "other.team.x", "a/b", "..", strings.Repeat("x", 3000), "contract-administration", id + "other"}
	if n := c.next(len(odd) + 3); n < len(odd) {
		return odd[n]
	}
	return c.rest()
}

func (m *monkey) parameters(c *choices, method protoreflect.Name) map[string]string {
	values := map[string][]string{
		"region": {"us-east-1"}, "acl": {"public-read"}, "grantRead": {"id=x"}, "policy": {"{}"}, "contrat": {"x"},
		"versioning": {"Enabled"}, "tags": {"a=b"}, "onDelete": {"empty", "refuse"},
	}
	out := map[string]string{}
	if method == "DriverGrantBucketAccess" {
		values = map[string][]string{"access": {"ReadOnly"}, "prefix": {"in/"}, "sourceIP": {"10.0.0.0/8"}, "mode": {"x"}}
	} else if c.next(8) < 7 {
		out["contract"] = m.contract
	}
	keys := slices.Sorted(maps.Keys(values))
	for range max(0, c.next(6)-3) {
		key := keys[c.next(len(keys))]
		if n := c.next(3); n < len(values[key]) {
			out[key] = values[key][n]
		} else {
			out[key] = c.rest()
		}
	}
	return out
}

// fill sets the fields of a message.
func (m *monkey) fill(c *choices, method protoreflect.Name, msg protoreflect.Message) {
	fields := msg.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if c.next(32) == 31 {
			continue // left out
		}
		switch {
		case f.IsMap():
			for k, v := range m.parameters(c, method) {
				msg.Mutable(f).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
			}
		case f.IsList():
			for range []int{1, 1, 1, 1, 2, 2, 0, 4}[c.next(8)] {
				m.fill(c, method, msg.Mutable(f).List().AppendMutable().Message())
			}
		case f.Message() != nil:
			m.fill(c, method, msg.Mutable(f).Message())
		case f.Enum() != nil:
			number := []protoreflect.EnumNumber{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 2, 3, 0, 77, -1}[c.next(16)]
			msg.Set(f, protoreflect.ValueOfEnum(number))
		case f.Kind() == protoreflect.StringKind:
			msg.Set(f, protoreflect.ValueOfString(m.text(c, method, f.Name())))
		default:
			m.Fatalf("a field of kind %s; teach the monkey", f.Kind())
		}
	}
}

// call makes one call out of some bytes and judges the answer.
func (m *monkey) call(data []byte) {
	c := choices(data)
	method := m.methods[c.next(len(m.methods))]
	req, resp := method.input.New(), method.output.New()
	m.fill(&c, method.Name(), req)
	made := "" // the id of a create by id, which the answer does not have
	if name := req.Descriptor().Fields().ByName("name"); resp.Descriptor().Name() == "DriverCreateBucketResponseC1" {
		made = "main." + m.contract + "." + m.contract + "-a"
		req.Set(name, protoreflect.ValueOfString(made))
	} else if name != nil && resp.Descriptor().Name() == "DriverCreateBucketResponse" {
		if _, err := cosi.ParseBucketID(req.Get(name).String()); err == nil {
			req.Clear(name) // it would be answered in the other form
		}
	}
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	err := m.conn.Invoke(context.Background(), name, req.Interface(), resp.Interface())
	s := status.Convert(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[s.Code()]++
	if err == nil {
		m.remember(resp.Interface())
		if made != "" && !slices.Contains(m.buckets, made) {
			m.buckets = append(m.buckets, made)
		}
		return
	}
	if !slices.Contains(m.tables[name].Codes(), s.Code()) || s.Code() == codes.Internal {
		m.Errorf("%s answers %s, which is not in its table or a defect: %s\n%v", name, s.Code(), s.Message(), req)
	}
	if s.Message() == "" || len(s.Details()) > 0 || strings.Contains(s.Message(), m.service.Token) {
		m.Errorf("%s: message %q, %d details", name, s.Message(), len(s.Details()))
	}
}

// wire is a codec of bytes, which are sent and received as they are.
type wire struct{}

func (wire) Name() string                    { return "proto" }
func (wire) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (wire) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }

// sample is a request of some method that makes sense, as bytes.
func (m *monkey) sample(c *choices, method form) []byte {
	req := method.input.New()
	m.fill(c, method.Name(), req)
	raw, err := proto.Marshal(req.Interface())
	must(m, err)
	return raw
}

// send makes one call of bytes and judges the answer. Only bytes that are no
// message in one of the method's forms may be refused as such.
func (m *monkey) send(t testing.TB, method form, raw []byte) {
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	message := true
	for _, other := range m.methods {
		if other.FullName() == method.FullName() {
			message = message && proto.Unmarshal(raw, other.input.New().Interface()) == nil
		}
	}
	var answer []byte
	err := m.conn.Invoke(context.Background(), name, &raw, &answer, grpc.ForceCodec(wire{}))
	s := status.Convert(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[s.Code()]++
	switch {
	case err == nil && !message:
		t.Errorf("%s takes %q, which is no message", name, raw)
	case err == nil:
		m.answered(t, method, raw, answer)
	case strings.HasPrefix(s.Message(), "grpc: "):
		if message {
			t.Errorf("%s does not take %q, which is a message", name, raw)
		}
	case !slices.Contains(m.tables[name].Codes(), s.Code()) || s.Code() == codes.Internal:
		t.Errorf("%s answers %s, which is not in its table or a defect: %s\n%q", name, s.Code(), s.Message(), raw)
	}
}

// answered keeps what was made by a call of bytes. The answer to a create by id
// has no id.
func (m *monkey) answered(t testing.TB, method form, raw, answer []byte) {
	if method.FullName() != "sigs.k8s.io.cosi.v1alpha2.Provisioner.DriverCreateBucket" {
		resp := method.output.New()
		must(t, proto.Unmarshal(answer, resp.Interface()))
		m.remember(resp.Interface())
		return
	}
	req, resp := &cosipb.DriverCreateBucketRequest{}, &cosipb.DriverCreateBucketResponse{}
	must(t, proto.Unmarshal(raw, req))
	id := req.GetName()
	if proto.Unmarshal(answer, resp) == nil {
		if _, err := cosi.ParseBucketID(resp.GetBucketId()); err == nil {
			id = resp.GetBucketId()
		}
	}
	if !slices.Contains(m.buckets, id) {
		m.buckets = append(m.buckets, id)
	}
}

func (m *monkey) remember(resp proto.Message) {
	r := resp.ProtoReflect()
	for name, list := range map[protoreflect.Name]*[]string{"bucket_id": &m.buckets, "account_id": &m.accounts} {
		if f := r.Descriptor().Fields().ByName(name); f != nil && !slices.Contains(*list, r.Get(f).String()) {
			*list = append(*list, r.Get(f).String())
		}
	}
}

// nothingLeaks takes everything back that was answered for, and then nothing
// may be left: no key, no bucket, no contract, no record, no panic.
func (m *monkey) nothingLeaks() {
	if at, known := len(m.keys(m.contract)), m.metric("contract_cosi_keys"); float64(at) != known {
		m.Errorf("%d keys at the service, %v in the journal", at, known)
	}
	for _, id := range m.accounts {
		must(m, v2{m.env}.revoke(id))
	}
	if got := m.keys(m.contract); len(got) != 0 {
		m.Errorf("%d keys that nobody was given", len(got))
	}
	var taken []string // ids that were only generated, as long as another contract has the name
	for _, id := range m.buckets {
		err := m.delete(id)
		if status.Code(err) == codes.PermissionDenied {
			taken = append(taken, id)
			continue
		}
		must(m, err)
	}
	for _, id := range taken {
		must(m, m.delete(id))
	}
	if code := m.api(http.MethodGet, "/v1/contracts/"+m.contract, nil, nil); code != http.StatusNotFound {
		m.Errorf("the contract is left (HTTP %d)", code)
	}
	if n := m.metric("contract_cosi_buckets") + m.metric("contract_cosi_keys"); n != 0 {
		m.Errorf("%v records are left in the journal", n)
	}
	if n := m.metric("contract_cosi_panics_total"); n != 0 {
		m.Errorf("%v calls panicked", n)
	}
}

// Random messages, eight callers at a time, the same in every run.
func TestRandomMessages(t *testing.T) {
	t.Parallel()
	m := newMonkey(t)
	const callers, calls = 8, 400
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			data := make([]byte, 200)
			for range calls {
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				m.call(data)
			}
		})
	}
	all.Wait()
	t.Logf("codes: %v; %d buckets and %d accesses were made", m.seen, len(m.buckets), len(m.accounts))
	if m.seen[codes.OK] < callers*calls/20 || len(m.accounts) < 2 || m.seen[codes.InvalidArgument] == 0 {
		t.Error("the messages are too much nonsense, or too little")
	}
	m.nothingLeaks()
}

// Random bytes, and messages of which some bytes are others, to every method of
// every generation.
func TestRandomBytes(t *testing.T) {
	t.Parallel()
	m := newMonkey(t)
	const callers, calls = 8, 400
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(caller)))
			data := make([]byte, 200)
			for i := range calls {
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				method := m.methods[i%len(m.methods)]
				raw := data[:random.IntN(len(data))]
				if i%8 > 0 {
					c := choices(data)
					raw = m.sample(&c, method)
					for range random.IntN(3) * min(1, len(raw)) {
						raw[random.IntN(len(raw))] = byte(random.Uint32())
					}
				}
				m.send(t, method, raw)
			}
		})
	}
	all.Wait()
	t.Logf("codes: %v; %d buckets and %d accesses were made", m.seen, len(m.buckets), len(m.accounts))
	if m.seen[codes.OK] < callers*calls/20 || m.seen[codes.Internal] == 0 || m.seen[codes.InvalidArgument] == 0 {
		t.Error("the bytes are too much nonsense, or too little")
	}
	m.nothingLeaks()
}

// keyTwiceInOneEntry is a field as an entry of a map of strings that has its key
// first as a string and then as a number.
func keyTwiceInOneEntry(field protowire.Number) []byte {
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, "contract")
	entry = protowire.AppendTag(entry, 1, protowire.VarintType)
	entry = protowire.AppendVarint(entry, 7)
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), entry)
}

func FuzzBytes(f *testing.F) {
	m := newMonkey(f)
	for i, method := range m.methods {
		f.Add(byte(i), []byte{})
		for field := range protowire.Number(5) {
			f.Add(byte(i), keyTwiceInOneEntry(field+1))
		}
		for seed := range byte(4) {
			c := choices(bytes.Repeat([]byte{seed, 3, seed + 1}, 60))
			f.Add(byte(i), m.sample(&c, method))
		}
	}
	f.Fuzz(func(t *testing.T, method byte, raw []byte) {
		m.send(t, m.methods[int(method)%len(m.methods)], raw)
	})
	m.nothingLeaks()
}

func FuzzMessages(f *testing.F) {
	m := newMonkey(f)
	for i := range m.methods {
		f.Add([]byte{byte(i)})
		f.Add([]byte{byte(i), 4, 0, 1, 1, 1, 0, 1, 1, 1, 1})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m.call(data)
		if m.Failed() {
			t.FailNow()
		}
	})
	m.nothingLeaks()
}
