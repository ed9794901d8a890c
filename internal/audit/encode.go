package audit

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Almost every event consists of the same few fields, and is encoded while its request is processed. These fields are
// encoded here, with output identical to encoding/json (encode_test.go). Conversion and reflection would take longer
// than the rest of auditing a request without a body.

// isSimple reports whether an event has only fields that appendEvent supports.
func isSimple(e *auditinternal.Event) bool {
	return e.RequestObject == nil && e.ResponseObject == nil && (e.ResponseStatus == nil || isSimpleStatus(e.ResponseStatus))
}

func isSimpleStatus(s *metav1.Status) bool {
	//lint:ignore SA1019 an answer of an extension server may still have one
	return s.TypeMeta == metav1.TypeMeta{} && s.ListMeta.SelfLink == "" && s.ResourceVersion == "" && s.Continue == "" &&
		s.RemainingItemCount == nil && s.ShardInfo == nil && s.Details == nil
}

// typicalEventBytes is the size that fits most events.
const typicalEventBytes = 1 << 10

// appendEvent appends an encoded event. It uses the event's annotations, or more if there are none.
func appendEvent(b []byte, e *auditinternal.Event, more []Annotation) []byte {
	b = append(b, `{"kind":"Event","apiVersion":"`+auditv1.GroupName+`/v1","level":`...)
	b = appendText(b, string(e.Level))
	b = appendText(append(b, `,"auditID":`...), string(e.AuditID))
	b = appendText(append(b, `,"stage":`...), string(e.Stage))
	b = appendText(append(b, `,"requestURI":`...), e.RequestURI)
	b = appendText(append(b, `,"verb":`...), e.Verb)
	b = appendUser(append(b, `,"user":`...), &e.User)
	if e.ImpersonatedUser != nil {
		b = appendUser(append(b, `,"impersonatedUser":`...), e.ImpersonatedUser)
	}
	if m := e.AuthenticationMetadata; m != nil {
		b = append(b, `,"authenticationMetadata":{`...)
		b = appendNonEmpty(b, `"impersonationConstraint":`, m.ImpersonationConstraint)
		b = append(b, '}')
	}
	b = appendTexts(b, `,"sourceIPs":`, e.SourceIPs)
	b = appendNonEmpty(b, `,"userAgent":`, e.UserAgent)
	if e.ObjectRef != nil {
		b = appendReference(append(b, `,"objectRef":`...), e.ObjectRef)
	}
	if e.ResponseStatus != nil {
		b = appendStatus(append(b, `,"responseStatus":`...), e.ResponseStatus)
	}
	b = appendTime(append(b, `,"requestReceivedTimestamp":`...), e.RequestReceivedTimestamp)
	b = appendTime(append(b, `,"stageTimestamp":`...), e.StageTimestamp)
	if len(e.Annotations) > 0 {
		b = appendAnnotations(append(b, `,"annotations":`...), e.Annotations)
	} else {
		b = appendExtraAnnotations(b, more)
	}
	return append(b, '}')
}

func appendUser(b []byte, u *authnv1.UserInfo) []byte {
	o := object{b: append(b, '{')}
	o.text("username", u.Username)
	o.text("uid", u.UID)
	o.texts("groups", u.Groups)
	if len(u.Extra) > 0 {
		o.name("extra")
		o.b = appendExtra(o.b, u.Extra)
	}
	return append(o.b, '}')
}

func appendExtra(b []byte, m map[string]authnv1.ExtraValue) []byte {
	var room [16]string
	for i, name := range sorted(room[:0], m) {
		b = append(b, "{,"[min(i, 1)])
		b = append(appendText(b, name), ':')
		switch values := m[name]; {
		case values == nil:
			b = append(b, "null"...)
		case len(values) == 0:
			b = append(b, "[]"...)
		default:
			b = appendTexts(b, "", values)
		}
	}
	return append(b, '}')
}

// sorted appends the keys of m to names and sorts them.
func sorted[V any](names []string, m map[string]V) []string {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func appendReference(b []byte, r *auditinternal.ObjectReference) []byte {
	o := object{b: append(b, '{')}
	o.text("resource", r.Resource)
	o.text("namespace", r.Namespace)
	o.text("name", r.Name)
	o.text("uid", string(r.UID))
	o.text("apiGroup", r.APIGroup)
	o.text("apiVersion", r.APIVersion)
	o.text("resourceVersion", r.ResourceVersion)
	o.text("subresource", r.Subresource)
	return append(o.b, '}')
}

func appendStatus(b []byte, s *metav1.Status) []byte {
	o := object{b: append(b, `{"metadata":{}`...)}
	o.text("status", s.Status)
	o.text("message", s.Message)
	o.text("reason", string(s.Reason))
	if s.Code != 0 {
		o.name("code")
		o.b = strconv.AppendInt(o.b, int64(s.Code), 10)
	}
	return append(o.b, '}')
}

func appendAnnotations(b []byte, m map[string]string) []byte {
	var room [16]string
	for i, name := range sorted(room[:0], m) {
		b = append(b, "{,"[min(i, 1)])
		b = appendText(b, name)
		b = append(b, ':')
		b = appendText(b, m[name])
	}
	return append(b, '}')
}

func appendExtraAnnotations(b []byte, more []Annotation) []byte {
	some := false
	for _, a := range more {
		if a.Value == "" {
			continue
		}
		if some {
			b = append(b, ',')
		} else {
			b = append(b, `,"annotations":{`...)
			some = true
		}
		b = appendText(append(appendText(b, a.Key), ':'), a.Value)
	}
	if some {
		b = append(b, '}')
	}
	return b
}

// object writes the non-empty fields of a JSON object.
type object struct{ b []byte }

func (o *object) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(name, value string) {
	if value != "" {
		o.name(name)
		o.b = appendText(o.b, value)
	}
}

func (o *object) texts(name string, values []string) {
	if len(values) > 0 {
		o.name(name)
		o.b = appendTexts(o.b, "", values)
	}
}

func appendNonEmpty(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(append(b, name...), value)
}

func appendTexts(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, name...)
	for i, v := range values {
		b = append(b, "[,"[min(i, 1)])
		b = appendText(b, v)
	}
	return append(b, ']')
}

// appendTime appends the encoding of metav1.MicroTime.
func appendTime(b []byte, t metav1.MicroTime) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	at := t.UTC()
	year, month, day := at.Date()
	b = append(b, '"')
	if year < 0 || year > 9999 {
		b = at.Round(0).AppendFormat(b, metav1.RFC3339Micro)
		return append(b, '"')
	}
	hour, minute, second := at.Clock()
	b = appendNumber(b, year, 1000)
	b = appendNumber(append(b, '-'), int(month), 10)
	b = appendNumber(append(b, '-'), day, 10)
	b = appendNumber(append(b, 'T'), hour, 10)
	b = appendNumber(append(b, ':'), minute, 10)
	b = appendNumber(append(b, ':'), second, 10)
	b = appendNumber(append(b, '.'), at.Nanosecond()/1000, 100_000)
	return append(b, 'Z', '"')
}

// appendNumber appends n with leading zeros. first is the value of the first digit's position.
func appendNumber(b []byte, n, first int) []byte {
	for ; first > 0; first /= 10 {
		b = append(b, byte('0'+n/first%10))
	}
	return b
}

// Classes of bytes in a JSON string.
const (
	plainByte = iota
	backslashed
	jsonEscaped // escaped by encoding/json
)

var byteClass = func() (t [256]byte) {
	for c := range t {
		switch {
		case c == '"' || c == '\\':
			t[c] = backslashed // frequent in RBAC's reasons
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x7f || c >= utf8.RuneSelf:
			t[c] = jsonEscaped
		}
	}
	return t
}()

// appendText appends a JSON string. Strings that need more than backslashes are encoded by encoding/json.
func appendText(b []byte, s string) []byte {
	found := byte(plainByte)
	rest := s
	for ; len(rest) >= 8; rest = rest[8:] { // eight independent lookups take the time of two
		found |= byteClass[rest[0]] | byteClass[rest[1]] | byteClass[rest[2]] | byteClass[rest[3]] |
			byteClass[rest[4]] | byteClass[rest[5]] | byteClass[rest[6]] | byteClass[rest[7]]
	}
	for i := range len(rest) {
		found |= byteClass[rest[i]]
	}
	if found >= jsonEscaped {
		text, err := json.Marshal(s)
		if err != nil { // strings cannot fail
			text = []byte(`""`)
		}
		return append(b, text...)
	}
	b = append(b, '"')
	if found == plainByte {
		b = append(b, s...)
		return append(b, '"')
	}
	from := 0
	for i := range len(s) {
		if byteClass[s[i]] == backslashed {
			b = append(append(b, s[from:i]...), '\\')
			from = i
		}
	}
	return append(append(b, s[from:]...), '"')
}
