package differential

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// nothing is what a field says that is not there.
const nothing = "(nothing)"

// difference is a field that two servers answer differently.
type difference struct {
	Step, Field, Left, Right string
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n  left:  %s\n  right: %s", d.Step, d.Field, d.Left, d.Right)
}

// known are differences that there is one reason for. In all its patterns * stands for anything.
type known struct {
	// Steps are names of requests.
	Steps []string `json:"steps"`
	// Fields are places whatever is said there. A * alone is none: it would hide whether the request was answered at all.
	Fields []string `json:"fields"`
	// Left are places and what the left server says there. Any other difference there is not known.
	Left map[string]string `json:"left"`
	// Engine is the implementation of HTTP (--http-engine) with which it is so. Empty: with each.
	Engine string `json:"engine"`
	// Why it is so.
	Why string `json:"why"`
}

// compare returns differences in the order of the script.
func compare(all []step, left, right []map[string]string) []difference {
	var out []difference
	for i, s := range all {
		places := maps.Clone(left[i])
		maps.Copy(places, right[i])
		for _, place := range slices.Sorted(maps.Keys(places)) {
			l, r := said(left[i], place), said(right[i], place)
			if l != r {
				out = append(out, difference{s.Name, place, l, r})
			}
		}
	}
	return out
}

func said(fields map[string]string, place string) string {
	if text, ok := fields[place]; ok {
		return text
	}
	return nothing
}

// explain returns the differences that nobody explains, and what explanations say of what does not differ: each of their
// patterns must match something.
func explain(found []difference, list []known) (unexplained []difference, idle []string) {
	used := make([]map[string]bool, len(list))
	for i := range list {
		used[i] = map[string]bool{}
	}
	for _, d := range found {
		explained := false
		for i, k := range list {
			explained = k.matches(d, used[i]) || explained
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for i, k := range list {
		for _, part := range k.parts() {
			if !used[i][part] {
				idle = append(idle, part+" ("+k.Why+")")
			}
		}
	}
	return unexplained, idle
}

// parts are the names of all patterns.
func (k known) parts() []string {
	var parts []string
	for _, step := range k.Steps {
		parts = append(parts, "step "+step)
	}
	for _, field := range k.places() {
		parts = append(parts, "field "+field)
	}
	return parts
}

// places are the fields, and those of which it is known what the left server says.
func (k known) places() []string {
	return append(slices.Clone(k.Fields), slices.Sorted(maps.Keys(k.Left))...)
}

// matches reports whether it explains a difference, and notes the patterns that do.
func (k known) matches(d difference, used map[string]bool) bool {
	explains := false
	for _, step := range k.Steps {
		if !like(step, d.Step) {
			continue
		}
		for _, field := range k.places() {
			says, pinned := k.Left[field]
			if !like(field, d.Field) || pinned && !like(says, d.Left) {
				continue
			}
			explains, used["step "+step], used["field "+field] = true, true, true
		}
	}
	return explains
}

// fault says what is wrong with it as it stands.
func (k known) fault() string {
	switch {
	case strings.TrimSpace(k.Why) == "":
		return "without a reason"
	case len(k.Steps) == 0 || len(k.places()) == 0:
		return "without steps, or without fields"
	case slices.ContainsFunc(k.places(), func(field string) bool { return strings.Trim(field, "*") == "" }):
		return "with a field that is every field"
	}
	return ""
}

// like reports whether a text is a pattern's, in which * stands for anything.
func like(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for i := 0; i <= len(text); i++ {
		if like(rest, text[i:]) {
			return true
		}
	}
	return false
}

// headers are those whose texts are a server's own: they have to be there, and nobody compares what they say.
var headers = map[string]bool{"Audit-Id": true, "X-Kubernetes-Pf-Flowschema-Uid": true, "X-Kubernetes-Pf-Prioritylevel-Uid": true, "Etag": true, "Last-Modified": true}

// ignored are headers that say nothing which the rest of an answer does not say.
var ignored = map[string]bool{"Date": true, "Content-Length": true, "Connection": true, "Trailer": true}

// private are fields whose text is a server's own: they have to be there, and nobody compares what they say.
var private = map[string]bool{"uid": true, "resourceVersion": true, "continue": true, "serverAddress": true, "token": true, "caBundle": true, "jwks_uri": true, "storageVersionHash": true}

// What differs inside of texts: identities, moments, ages, and versions in messages.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`X509SHA256=[0-9a-f]{64}`), "<credential>"},
	{regexp.MustCompile(`stream ID \d+`), "stream ID <number>"},
	{regexp.MustCompile(`\b\d+ bytes\b`), "<some> bytes"},
	{regexp.MustCompile(`current: \d+`), "current: <version>"},
	{regexp.MustCompile(`(ResourceVersion in record )\(\d+\)`), "$1(<version>)"},
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":"<version>"`},
	{regexp.MustCompile(`hash=[0-9A-F]{128}`), "hash=<hash>"},
	{regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----`), "<certificates>"},
	{regexp.MustCompile(`^\d+(s|m|m\d+s)$`), "<age>"},
	{regexp.MustCompile(`too old resource version: \d+ \(\d+\)`), "too old resource version: <version> (<version>)"},
	{regexp.MustCompile(`(Precondition failed: UID in precondition: )\S+( UID in object meta: )\S+`), "$1<uid>,$2<uid>"},
}

// more are conditions of APIServices that kube-apiserver does not have, in managedFields' names for them. They come when
// they come, and nobody compares them.
var more = regexp.MustCompile(`\{"type":"(AvailableOnAllReplicas|CABundleValid|ServingCertExpiring|TLSVerified)"\}`)

// keyed are what a list's objects are told apart by, if all of them have one and no two the same.
var keyed = []func(any) string{at("name"), at("resource"), at("version"), at("subresource"), at("metadata.name"), at("type"), keyOfManager}

func at(path string) func(any) string {
	return func(element any) string { return textAt(element, path) }
}

// keyOfManager tells managedFields apart, whose order is that of seconds.
func keyOfManager(element any) string {
	if textAt(element, "manager") == "" {
		return ""
	}
	return strings.TrimRight(managers.Replace(textAt(element, "manager"))+"/"+textAt(element, "operation")+"/"+textAt(element, "subresource"), "/")
}

// managers are the names of the programs that act on their own, which are not the same.
var managers = strings.NewReplacer("kube-apiserver", "<server>", "kube-controller-manager", "<server>", "aggregator", "<server>")

// fields are what an answer says, each by its place: code, header.NAME, and body with dots and [index or name]. Places are
// the same for two servers that say the same.
func fields(s step, a answer, own func(string) string) map[string]string {
	out := map[string]string{"code": strconv.Itoa(a.Code)}
	if len(a.Interim) > 0 {
		out["interim"] = fmt.Sprint(a.Interim)
	}
	if a.Broken {
		out["broken"] = "true"
	}
	for name := range a.Header {
		said := slices.Sorted(slices.Values(a.Header.Values(name)))
		switch {
		case ignored[name]:
		case headers[name]:
			out["header."+name] = "<there>"
		default:
			out["header."+name] = steady(strings.Join(said, " | "), own)
		}
	}
	for name, said := range a.Trailer {
		out["trailer."+name] = steady(strings.Join(said, " | "), own)
	}
	if s.Head {
		return out
	}
	var body any
	if err := json.Unmarshal(a.Body, &body); err != nil {
		out["body"] = steady(string(a.Body), own)
		return out
	}
	flatten(out, "body", body, own)
	return out
}

func flatten(out map[string]string, place string, value any, own func(string) string) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[place] = "{}"
		}
		for name, inner := range v {
			if more.MatchString(name) {
				continue
			}
			inside := place + "." + name
			if _, text := inner.(string); text && private[name] {
				if inner != "" {
					inner = "<" + name + ">"
				}
				out[inside] = fmt.Sprintf("%q", inner)
				continue
			}
			if text, ok := inner.(string); ok && name == "manager" {
				inner = managers.Replace(text)
			}
			flatten(out, inside, inner, own)
		}
	case []any:
		v = slices.DeleteFunc(v, func(element any) bool { return more.MatchString(`{"type":"` + textAt(element, "type") + `"}`) })
		if len(v) == 0 {
			out[place] = "[]"
		}
		keys := keysOf(v)
		for i, inner := range v {
			flatten(out, place+"["+steady(keys[i], own)+"]", inner, own)
		}
		if len(v) > 1 && keys[0] != "0" && !strings.HasSuffix(place, ".managedFields") {
			out[place] = steady(strings.Join(keys, " "), own) // their order
		}
	case string:
		out[place] = fmt.Sprintf("%q", steady(v, own))
	default:
		out[place] = steady(fmt.Sprint(v), own)
	}
}

// keysOf tells the elements of a list apart, by a name of theirs or else by their indexes.
func keysOf(list []any) []string {
	for _, key := range keyed {
		var keys []string
		for _, element := range list {
			if key := key(element); key != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if len(keys) == len(list) {
			return keys
		}
	}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = strconv.Itoa(i)
	}
	return keys
}

// textAt is the text at a path such as metadata.resourceVersion.
func textAt(at any, path string) string {
	for _, name := range strings.Split(path, ".") {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	text, _ := at.(string)
	return text
}

// steady is a text without what differs from server to server and from moment to moment.
func steady(text string, own func(string) string) string {
	text = own(text)
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}
