package kinds

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// answer is the response of a server.
type answer struct {
	Code     int
	Warnings []string
	Body     any
}

// private contains the fields with values specific to a server.
var private = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "deletionTimestamp": true, "time": true, "token": true,
	"healthCheckNodePort": true, "nodePort": true, "clusterIP": true, "lastUpdateTime": true, "continue": true,
}

// Variable parts of texts.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-<random>"},
	{regexp.MustCompile(`([Rr]andom-|r{50})[a-z0-9]{5}\b`), "$1<random>"},
	{regexp.MustCompile(`^(kube-apiserver|kube-controller-manager|aggregator|ours)$`), "<controllers>"},
	{regexp.MustCompile(`conflict with "(kube-controller-manager|aggregator|ours)"`), `conflict with "<controllers>"`},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "<cluster address>"},
	{regexp.MustCompile(`^(\d+[ydhms]){1,2}$`), "<age>"},
}

// fields returns the values of a response by place. Equal responses of two servers have equal fields. If owners is
// true, they include managedFields, which follow from the object and are large.
func (a answer) fields(owners bool) map[string]string {
	out := map[string]string{}
	body := a.Body
	if causes, ok := lookup(body, path{"details", "causes"}); ok && a.Code >= 400 {
		for _, cause := range causes.([]any) {
			out["cause "+plain(cause)] = "there"
		}
		// The message repeats the causes in an unspecified order.
		body = with(with(body, path{"details", "causes"}, gone{}), path{"message"}, gone{})
	}
	if !owners {
		body = with(body, path{"metadata", "managedFields"}, gone{})
	}
	for place, text := range flatten(body) {
		if strings.Contains(place, "columnDefinitions") && strings.HasSuffix(place, ".description") {
			continue // the descriptions differ, and clients do not show them
		}
		names := strings.Split(place, ".")
		last := names[len(names)-1]
		if len(names) > 1 && private[last] && text != "" && text != "None" && !strings.HasPrefix(last, "f:") {
			text = "<" + last + ">"
		}
		if slices.Contains(names, "clusterIPs") && text != "None" {
			text = "<clusterIP>"
		}
		out["body."+place] = steady(text)
	}
	out["code"] = strconv.Itoa(a.Code)
	for i, warning := range a.Warnings {
		out["warning."+strconv.Itoa(i)] = steady(warning)
	}
	return out
}

// asShown matches a value in a message that is an object. kube-apiserver formats it with its internal types, which
// have no JSON names. The same applies to differences between two objects.
var asShown = regexp.MustCompile(`(?s)value: (?:[\[{].*[\]}]|null)(: |$)`)

func plain(cause any) string {
	c, _ := cause.(map[string]any)
	message, _ := c["message"].(string)
	message, _, _ = strings.Cut(message, "\n@@ ")
	message = asShown.ReplaceAllString(message, "value: <object>$1")
	if before, values, ok := strings.Cut(message, "supported values: "); ok { // listed in the order of the server's source
		sorted := strings.Split(values, ", ")
		slices.Sort(sorted)
		message = before + "supported values: " + strings.Join(sorted, ", ")
	}
	return steady(fmt.Sprintf("%v|%v|%s", c["field"], c["reason"], message))
}

func steady(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}
