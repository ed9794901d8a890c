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

// nothing is the value of a missing field.
const nothing = "(nothing)"

// difference is a field with different values at two servers.
type difference struct {
	Step, Field, Left, Right string
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n  left:  %s\n  right: %s", d.Step, d.Field, d.Left, d.Right)
}

// known describes differences with a common reason. In all patterns, * matches any text.
type known struct {
	// Steps contains the names of requests.
	Steps []string `json:"steps"`
	// Fields contains places with arbitrary values. A single * is not permitted, because it would hide whether the
	// request succeeded.
	Fields []string `json:"fields"`
	// Left maps places to the value at the left server. Other differences at these places are not known.
	Left map[string]string `json:"left"`
	// Engine is the HTTP implementation (--http-engine) to which the entry applies. Empty means all.
	Engine string `json:"engine"`
	// Why is the reason.
	Why string `json:"why"`
}

// compare returns the differences in the order of the script.
func compare(all []step, left, right []map[string]string) []difference {
	var out []difference
	for i, s := range all {
		places := maps.Clone(left[i])
		maps.Copy(places, right[i])
		for _, place := range slices.Sorted(maps.Keys(places)) {
			l, r := fieldText(left[i], place), fieldText(right[i], place)
			if l != r {
				out = append(out, difference{s.Name, place, l, r})
			}
		}
	}
	return out
}

func fieldText(fields map[string]string, place string) string {
	if text, ok := fields[place]; ok {
		return text
	}
	return nothing
}

// explain returns the differences without an explanation, and the patterns that match no difference. Every pattern
// must match at least one.
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

// parts returns the names of all patterns.
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

// places returns the patterns of Fields and Left.
func (k known) places() []string {
	return append(slices.Clone(k.Fields), slices.Sorted(maps.Keys(k.Left))...)
}

// matches reports whether the entry explains a difference, and records the matching patterns.
func (k known) matches(d difference, used map[string]bool) bool {
	explains := false
	for _, step := range k.Steps {
		if !matches(step, d.Step) {
			continue
		}
		for _, field := range k.places() {
			says, pinned := k.Left[field]
			if !matches(field, d.Field) || pinned && !matches(says, d.Left) {
				continue
			}
			explains, used["step "+step], used["field "+field] = true, true, true
		}
	}
	return explains
}

// fault describes why the entry is invalid, or returns an empty string.
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

// matches reports whether text matches pattern, in which * matches any text.
func matches(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for i := 0; i <= len(text); i++ {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}

// headers contains the headers with values specific to a server. They must be present, but their values are not
// compared.
var headers = map[string]bool{"Audit-Id": true, "X-Kubernetes-Pf-Flowschema-Uid": true, "X-Kubernetes-Pf-Prioritylevel-Uid": true, "Etag": true, "Last-Modified": true}

// ignored contains the headers that are not compared, because they are redundant.
var ignored = map[string]bool{"Date": true, "Content-Length": true, "Connection": true, "Trailer": true}

// private contains the fields with values specific to a server. They must be present, but their values are not
// compared.
var private = map[string]bool{"uid": true, "resourceVersion": true, "continue": true, "serverAddress": true, "token": true, "caBundle": true, "jwks_uri": true, "storageVersionHash": true}

// Variable parts of texts: UIDs, times, ages, and versions in messages.
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

// more matches conditions of APIServices that kube-apiserver does not have, in the format of managedFields. They are
// not compared, because their time of appearance varies.
var more = regexp.MustCompile(`\{"type":"(AvailableOnAllReplicas|CABundleValid|ServingCertExpiring|TLSVerified)"\}`)

// keyed lists the functions that identify the elements of a list. A function applies if its values are nonempty and
// unique.
var keyed = []func(any) string{at("name"), at("resource"), at("version"), at("subresource"), at("metadata.name"), at("type"), keyOfManager}

func at(path string) func(any) string {
	return func(element any) string { return textAt(element, path) }
}

// keyOfManager identifies an entry of managedFields, whose order depends on times with second precision.
func keyOfManager(element any) string {
	if textAt(element, "manager") == "" {
		return ""
	}
	return strings.TrimRight(managers.Replace(textAt(element, "manager"))+"/"+textAt(element, "operation")+"/"+textAt(element, "subresource"), "/")
}

// managers replaces the names of built-in managers, which differ between the servers.
var managers = strings.NewReplacer("kube-apiserver", "<server>", "kube-controller-manager", "<server>", "aggregator", "<server>")

// fields returns the values of a response by place: code, header.NAME, and body with dots and [index or name]. Equal
// responses of two servers have equal places.
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

// keysOf identifies the elements of a list by name, or by index if that is not possible.
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

// textAt returns the string at a path such as metadata.resourceVersion.
func textAt(at any, path string) string {
	for _, name := range strings.Split(path, ".") {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	text, _ := at.(string)
	return text
}

// steady replaces the parts of a text that vary between servers and over time.
func steady(text string, own func(string) string) string {
	text = own(text)
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}
