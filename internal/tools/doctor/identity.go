package doctor

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
)

// authenticationConfigMap is the ConfigMap with the front proxy that extension servers must trust.
const (
	authenticationConfigMapName = "extension-apiserver-authentication"
	authenticationConfigMap     = "/api/v1/namespaces/kube-system/configmaps/" + authenticationConfigMapName

	reviewPath        = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	subjectReviewPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// identity checks how the extension server authenticates the API server's requests and the users in them.
func (x *exam) identity(ctx context.Context) finding {
	a := x.discoveryAnswer(ctx)
	if f, found := x.delegation(ctx, a); found {
		return f
	}
	switch {
	case a.err == nil && a.code == http.StatusUnauthorized:
		return x.unauthorized(ctx)
	case a.err == nil && a.code == http.StatusForbidden:
		return x.forbidden(ctx, a)
	case !x.answered(ctx):
		return x.identityUnheard(ctx)
	}
	if x.cfg.FrontProxy != nil && len(x.dialled) > 0 {
		if p := x.probe(ctx); p.err == nil && (p.code == http.StatusUnauthorized || p.code == http.StatusForbidden) {
			return flawed(fmt.Sprintf("with the front proxy's certificate, asked from here, it answers %d: %s", p.code, p.text()), x.letRead(ctx)...)
		}
	}
	if f, found := x.forOthers(ctx); found {
		return f
	}
	if other := x.describeOtherServer(ctx); other != "" {
		return flawed(other, x.letRead(ctx)...)
	}
	return ok("it answers what the API server asks in your name")
}

// anyUser has only the rights of every authenticated user, which include discovery.
const anyUser = "aggregator-doctor:somebody"

// undecided is the response of our extension servers if they cannot create an access review. The response omits the
// reason.
const undecided = "could not ask whether this is allowed"

// forOthers repeats the request as a user without rights. Extension servers admit the group system:masters without a
// review, and the user of this command and the API server's check may belong to it, so a server without the right to
// create reviews seems healthy to them.
func (x *exam) forOthers(ctx context.Context) (finding, bool) {
	a := x.api.askAs(ctx, anyUser, apiservice.DiscoveryPath(x.gv))
	if f, found := x.delegation(ctx, a); found {
		return flawed(f.found, f.fix...), true
	}
	if a.err != nil || a.code != http.StatusInternalServerError || !strings.Contains(a.text(), undecided) {
		return finding{}, false
	}
	account, sure := x.serviceAccount(ctx)
	var fix []string
	if !sure {
		fix = append(fix, "# replace "+account+" by the service account that it runs as:")
	}
	return flawed("the extension server answers administrators, and everybody else that it could not ask who may do what",
		append(fix, Kubectl("create", "clusterrolebinding", x.object.Spec.Service.Name+":system:auth-delegator", "--clusterrole=system:auth-delegator", "--serviceaccount="+account))...), true
}

// identityUnheard handles a backend whose responses the API server does not forward.
func (x *exam) identityUnheard(ctx context.Context) finding {
	var p answer
	if len(x.dialled) > 0 {
		p = x.probe(ctx)
		// A server without the right to create reviews fails in this way for every caller.
		if f, found := x.delegation(ctx, p); found {
			return f
		}
	}
	switch x.backendStatusCode(ctx) {
	case http.StatusUnauthorized:
		return x.unauthorized(ctx)
	case http.StatusForbidden:
		if x.cfg.FrontProxy != nil && p.code == http.StatusForbidden {
			return x.forbidden(ctx, p)
		}
		return broken("the extension server answers the API server 403: it takes it for system:anonymous, because it has not read which front proxy to trust ("+
			x.published(ctx)+"), or it decides by rules of its own; asked with --proxy-client-cert-file it says which", x.letRead(ctx)...).
			saying(apiservice.ProbeStatusMessage(x.probeURL(), http.StatusForbidden))
	}
	return unknown("no answer came to judge by")
}

// unauthorized handles a 401 that came through the API server. The API server has authenticated this client, so the
// extension server does not accept the front proxy.
func (x *exam) unauthorized(ctx context.Context) finding {
	found := x.describeOtherServer(ctx)
	if found == "" {
		found = "the extension server does not accept the API server's front-proxy certificate: it does not trust the authority that signed it, or not its name (" + x.published(ctx) + ")"
	}
	return broken(found, x.letRead(ctx)...).saying(apiservice.ProbeStatusMessage(x.probeURL(), http.StatusUnauthorized))
}

// forbidden handles a 403. The API server and the extension server send it in the same form, so an access review
// determines whether it came from the API server.
func (x *exam) forbidden(ctx context.Context, a answer) finding {
	var review authorizationv1.SelfSubjectAccessReview
	path := apiservice.DiscoveryPath(x.gv)
	err := x.api.create(ctx, reviewPath, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}, &review)
	if err == nil && !review.Status.Allowed {
		return unknown("the API server does not let you read " + path)
	}
	sentence := apiservice.ProbeStatusMessage(x.probeURL(), http.StatusForbidden)
	if strings.Contains(a.text(), "system:anonymous") {
		return broken("the extension server takes every caller for system:anonymous: it has not read from the API server which front proxy to trust ("+x.published(ctx)+")",
			x.letRead(ctx)...).saying(sentence)
	}
	return broken("the extension server knows who asks and refuses: "+strings.TrimSpace(a.text()),
		"# the API server allows it; the extension server decides by rules of its own, or asks another API server:", x.lookAtServer()).saying(sentence)
}

// reviewer matches the message of a server without the right to create reviews.
var reviewer = regexp.MustCompile(`(subjectaccessreviews|tokenreviews)\S* is forbidden: User "([^"]+)"`)

// delegation detects, in any response, a server that may not send reviews of its callers to the API server.
func (x *exam) delegation(ctx context.Context, a answer) (finding, bool) {
	if a.err != nil || a.code < http.StatusBadRequest {
		return finding{}, false
	}
	match := reviewer.FindStringSubmatch(a.text())
	if match == nil {
		return finding{}, false
	}
	subject := "--user=" + match[2]
	if account, isAccount := strings.CutPrefix(match[2], "system:serviceaccount:"); isAccount {
		subject = "--serviceaccount=" + account
	}
	return broken(fmt.Sprintf("the extension server may not create %s, with which it asks who may do what; it runs as %s", match[1], match[2]),
		Kubectl("create", "clusterrolebinding", x.object.Spec.Service.Name+":system:auth-delegator", "--clusterrole=system:auth-delegator", subject),
	).saying(apiservice.ProbeStatusMessage(x.probeURL(), a.code)), true
}

// letRead returns commands that permit the extension server to read the front-proxy configuration, unless it already
// may, and make it read the configuration again.
func (x *exam) letRead(ctx context.Context) []string {
	account, sure := x.serviceAccount(ctx)
	var out []string
	if !sure {
		out = append(out, "# replace "+account+" by the service account that it runs as:")
	} else if x.mayRead(ctx, account) {
		return []string{"# it may read whom to trust; most servers do so at their start only:", x.restart()}
	}
	return append(out,
		Kubectl("-n", "kube-system", "create", "rolebinding", x.object.Spec.Service.Name+"-auth-reader", "--role=extension-apiserver-authentication-reader", "--serviceaccount="+account),
		"# then, because most read it at their start only:", x.restart())
}

// mayRead reports whether a service account may read the front-proxy configuration. It returns false if this cannot
// be determined.
func (x *exam) mayRead(ctx context.Context, account string) bool {
	ns, name, _ := strings.Cut(account, ":")
	var review authorizationv1.SubjectAccessReview
	err := x.api.create(ctx, subjectReviewPath, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + ns, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Version: "v1", Resource: "configmaps", Namespace: "kube-system", Name: authenticationConfigMapName,
		},
	}}, &review)
	return err == nil && name != "" && review.Status.Allowed
}

// frontProxyCA returns the front-proxy authority and the allowed names that the API server publishes for extension
// servers.
func (x *exam) frontProxyCA(ctx context.Context) (ca []byte, names string, err error) {
	var published corev1.ConfigMap
	if err := x.api.get(ctx, authenticationConfigMap, &published); err != nil {
		return nil, "", err
	}
	return []byte(published.Data["requestheader-client-ca-file"]), published.Data["requestheader-allowed-names"], nil
}

// published describes the front-proxy configuration that the API server publishes.
func (x *exam) published(ctx context.Context) string {
	ca, names, err := x.frontProxyCA(ctx)
	if err != nil {
		return "kube-system/extension-apiserver-authentication cannot be read: " + reading(err)
	}
	certs, err := pki.ParseBundle(ca)
	if err != nil {
		return "kube-system/extension-apiserver-authentication holds no front-proxy authority"
	}
	return fmt.Sprintf("kube-system/extension-apiserver-authentication names authority %q, allowed names %s", nameOf(certs[0]), names)
}

// describeOtherServer describes a server that accepts client certificates, but not the front proxy's. It returns an empty string if
// the server accepts the front proxy or this cannot be determined.
func (x *exam) describeOtherServer(ctx context.Context) string {
	if x.seen == nil || len(x.seen.AcceptableCAs) == 0 {
		return ""
	}
	ca, _, err := x.frontProxyCA(ctx)
	if err != nil {
		return ""
	}
	certs, err := pki.ParseBundle(ca)
	if err != nil {
		return ""
	}
	for _, cert := range certs {
		for _, subject := range x.seen.AcceptableCAs {
			if bytes.Equal(subject, cert.RawSubject) {
				return ""
			}
		}
	}
	return fmt.Sprintf("the extension server takes client certificates of %s, and the front proxy's is of %q: it trusts another front proxy, or has not noticed that the authority changed",
		strings.Join(subjectsOf(x.seen.AcceptableCAs), ", "), nameOf(certs[0]))
}
