package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Kubectl returns a command line that is safe to paste into a shell.
func Kubectl(args ...string) string {
	quoted := make([]string, 0, len(args)+1)
	quoted = append(quoted, "kubectl")
	for _, a := range args {
		quoted = append(quoted, quote(a))
	}
	return strings.Join(quoted, " ")
}

// quote quotes shell metacharacters. Names come from the API server and must not be interpreted by the shell.
func quote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=,@%+", r)
	}) < 0
	if plain && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// patch returns a merge patch as a command-line argument.
func patch(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "{}" // unreachable: maps of strings and numbers always marshal
	}
	return string(data)
}

type fields = map[string]any

// patchAPIService returns a command that changes fields of the spec.
func (x *exam) patchAPIService(spec fields) string {
	return Kubectl("patch", "apiservice", x.object.Name, "--type=merge", "-p", patch(fields{"spec": spec}))
}

// inNamespace returns a command in the namespace of the Service.
func (x *exam) inNamespace(args ...string) string {
	return Kubectl(append([]string{"-n", x.object.Spec.Service.Namespace}, args...)...)
}

// setBundle returns a command that sets spec.caBundle to the contents of a file. Its use of base64 works with BSD and
// GNU versions.
func (x *exam) setBundle(file string) string { return x.setBundleFrom("base64 < " + quote(file)) }

// setBundleFrom returns a command that sets spec.caBundle to the base64 output of another command.
func (x *exam) setBundleFrom(command string) string {
	return fmt.Sprintf(`kubectl patch apiservice %s --type=merge -p '{"spec":{"insecureSkipTLSVerify":false,"caBundle":"'"$(%s | tr -d '\n')"'"}}'`,
		quote(x.object.Name), command)
}

// injectBundle returns a command that makes cert-manager set and update spec.caBundle.
func (x *exam) injectBundle() []string {
	return []string{
		"# or, where cert-manager issues the certificate, let it keep the bundle; the name is that of the Certificate:",
		Kubectl("annotate", "apiservice", x.object.Name, "--overwrite",
			"cert-manager.io/inject-ca-from="+x.object.Spec.Service.Namespace+"/"+x.object.Spec.Service.Name),
	}
}

// pods returns the names of the pods behind the endpoints.
func (x *exam) pods() []string {
	var names []string
	for _, s := range x.slices {
		for _, e := range s.Endpoints {
			if isPod(&e) {
				names = append(names, e.TargetRef.Name)
			}
		}
	}
	return names
}

func isPod(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && e.TargetRef.Kind == "Pod" && e.TargetRef.Name != ""
}

// lookAtServer returns a command that inspects the extension server.
func (x *exam) lookAtServer() string {
	if pods := x.pods(); len(pods) > 0 {
		return x.inNamespace("logs", pods[0])
	}
	return x.inNamespace("describe", "service", x.object.Spec.Service.Name)
}

// serviceAccount returns the service account of the extension server in the format of --serviceaccount. sure is false
// if it is a guess.
func (x *exam) serviceAccount(ctx context.Context) (name string, sure bool) {
	ns := x.object.Spec.Service.Namespace
	for _, pod := range x.pods() {
		var p corev1.Pod
		if x.api.get(ctx, "/api/v1/namespaces/"+url.PathEscape(ns)+"/pods/"+url.PathEscape(pod), &p) == nil && p.Spec.ServiceAccountName != "" {
			return ns + ":" + p.Spec.ServiceAccountName, true
		}
	}
	return ns + ":" + x.object.Spec.Service.Name, false
}

// some formats a count: "1 pod", "2 pods".
func some(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
