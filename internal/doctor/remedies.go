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

// kubectl is a command line that a shell takes as it is.
func kubectl(args ...string) string {
	quoted := make([]string, 0, len(args)+1)
	quoted = append(quoted, "kubectl")
	for _, a := range args {
		quoted = append(quoted, quote(a))
	}
	return strings.Join(quoted, " ")
}

// quote quotes what a shell would read otherwise. Names come from the API server; it is not for us to trust them with a
// shell.
func quote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=,@%+", r)
	}) < 0
	if plain && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// patch is a merge patch as an argument.
func patch(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "{}" // maps of strings and numbers always marshal
	}
	return string(data)
}

type fields = map[string]any

// patchAPIService mends a field of spec.
func (x *exam) patchAPIService(spec fields) string {
	return kubectl("patch", "apiservice", x.object.Name, "--type=merge", "-p", patch(fields{"spec": spec}))
}

// inNamespace is a command in the namespace of the Service.
func (x *exam) inNamespace(args ...string) string {
	return kubectl(append([]string{"-n", x.object.Spec.Service.Namespace}, args...)...)
}

// setBundle sets spec.caBundle to the contents of a file. Base64 is as both the BSD and the GNU program understand it.
func (x *exam) setBundle(file string) string { return x.setBundleFrom("base64 < " + quote(file)) }

// setBundleFrom sets spec.caBundle to what a command prints in base64.
func (x *exam) setBundleFrom(command string) string {
	return fmt.Sprintf(`kubectl patch apiservice %s --type=merge -p '{"spec":{"insecureSkipTLSVerify":false,"caBundle":"'"$(%s | tr -d '\n')"'"}}'`,
		quote(x.object.Name), command)
}

// injectBundle has cert-manager set spec.caBundle, and keep it.
func (x *exam) injectBundle() []string {
	return []string{
		"# or, where cert-manager issues the certificate, let it keep the bundle; the name is that of the Certificate:",
		kubectl("annotate", "apiservice", x.object.Name, "--overwrite",
			"cert-manager.io/inject-ca-from="+x.object.Spec.Service.Namespace+"/"+x.object.Spec.Service.Name),
	}
}

// pods are those behind the endpoints.
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

// lookAtServer is how to look at the extension server itself.
func (x *exam) lookAtServer() string {
	if pods := x.pods(); len(pods) > 0 {
		return x.inNamespace("logs", pods[0])
	}
	return x.inNamespace("describe", "service", x.object.Spec.Service.Name)
}

// serviceAccount is whom the extension server runs as, as --serviceaccount takes it. sure is false when it is a guess.
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

// some counts things: "1 pod", "2 pods".
func some(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
