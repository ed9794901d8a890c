package differential

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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
