package differential

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// headers are those that clients act on. Those with a false value only have to be there: what they say is an identity.
var headers = map[string]bool{
	"Content-Type": true, "Cache-Control": true, "Warning": true, "Retry-After": true, "Allow": true, "Location": true,
	"Www-Authenticate": true, "X-Content-Type-Options": true, "Audit-Id": false, "X-Kubernetes-Pf-Flowschema-Uid": false,
}

// private are fields whose text is a server's own: they have to be there, and nobody compares what they say.
var private = map[string]bool{"uid": true, "resourceVersion": true, "continue": true, "serverAddress": true, "token": true, "storageVersionHash": true}

// What differs inside of texts: identities, moments, ages, and versions in messages.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----`), "<certificates>"},
	{regexp.MustCompile(`^\d+(s|m|m\d+s)$`), "<age>"},
	{regexp.MustCompile(`too old resource version: \d+ \(\d+\)`), "too old resource version: <version> (<version>)"},
	{regexp.MustCompile(`(Precondition failed: UID in precondition: )\S+( UID in object meta: )\S+`), "$1<uid>,$2<uid>"},
}

// fields are what an answer says, each by its place: code, header.NAME, and body with dots and [index]. Places are the same
// for two servers that say the same.
func fields(s step, a answer, namespace string) map[string]string {
	out := map[string]string{"code": strconv.Itoa(a.Code)}
	for name, compared := range headers {
		values := slices.Clone(a.Header.Values(name))
		switch {
		case len(values) == 0:
		case compared:
			slices.Sort(values)
			out["header."+name] = steady(strings.Join(values, " | "), namespace)
		default:
			out["header."+name] = "<there>"
		}
	}
	if s.Head {
		return out
	}
	var body any
	if err := json.Unmarshal(a.Body, &body); err != nil {
		out["body"] = steady(string(a.Body), namespace)
		return out
	}
	flatten(out, "body", body, namespace)
	return out
}

func flatten(out map[string]string, place string, value any, namespace string) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[place] = "{}"
		}
		for name, inner := range v {
			inside := place + "." + name
			if _, text := inner.(string); text && private[name] {
				if inner != "" {
					inner = "<" + name + ">"
				}
				out[inside] = fmt.Sprintf("%q", inner)
				continue
			}
			flatten(out, inside, inner, namespace)
		}
	case []any:
		if len(v) == 0 {
			out[place] = "[]"
		}
		for i, inner := range v {
			flatten(out, fmt.Sprintf("%s[%d]", place, i), inner, namespace)
		}
	case string:
		out[place] = fmt.Sprintf("%q", steady(v, namespace))
	default:
		out[place] = fmt.Sprint(v)
	}
}

// steady is a text without what differs from server to server and from moment to moment.
func steady(text, namespace string) string {
	text = strings.ReplaceAll(text, namespace, "{ns}")
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}
