package conformance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

func trustChecks() []check {
	return []check{
		{id: "trust/anonymous", expected: "a list is refused to who shows no credentials, with a Status",
			reason: "whoever reaches the port would be served past the API server's authorization", run: onServer(anonymous)},
		{id: "trust/headers", expected: "X-Remote-User without the front proxy's certificate counts for nothing",
			reason: "otherwise everybody who reaches the port is whoever they say", run: onServer(bareHeaders)},
		{id: "trust/certificate", expected: "X-Remote-User with a certificate of an unknown authority counts for nothing, whatever its name",
			reason: "names can be chosen; only the authority in extension-apiserver-authentication says who the front proxy is", run: onServer(forgedProxy)},
		{id: "trust/authorization", expected: "a user who the front proxy vouches for, and who has no rights, is refused",
			reason: "the server asks for itself (SubjectAccessReview), so that no single check is all there is", run: powerless},
		{id: "trust/rotation", expected: "a front-proxy authority that is published counts soon after, and one that is taken back no more",
			reason: "authorities rotate; most outages after a year are a server that read them only when it started", run: rotation, changes: true},
	}
}

// onServer returns a check that only the server itself can answer. It passes f the path of a list that requires
// permissions.
func onServer(f func(context.Context, *examination, string) verdict) func(context.Context, *examination) verdict {
	return func(ctx context.Context, x *examination) verdict {
		if x.server == nil {
			return notApplicable("%s", x.whyNoServer)
		}
		path, none := x.guarded()
		if none != nil {
			return *none
		}
		return f(ctx, x, path)
	}
}

// guarded returns a path that requires permissions. Discovery does not qualify, because it may be public.
func (x *examination) guarded() (string, *verdict) {
	for _, r := range x.resources {
		if can(r, "list") {
			return x.path(r, ""), nil
		}
	}
	v := notApplicable("no resource has the verb list")
	return "", &v
}

// asOther sends a request with an optional certificate and optional headers.
func (x *examination) asOther(ctx context.Context, path string, certificate *pki.KeyPair, headers http.Header) answer {
	other, err := x.server.bare(x.cfg.Timeout, certificate)
	if err != nil {
		return answer{question: question{path: path}, err: err}
	}
	defer other.client.CloseIdleConnections()
	other.headers = headers
	return other.get(ctx, path)
}

// masters returns the headers of a user with all permissions, if the server trusts the headers.
func masters() http.Header { return remote("system:admin", "system:masters") }

func anonymous(ctx context.Context, x *examination, path string) verdict {
	return x.asOther(ctx, path, nil, nil).refusal(http.StatusUnauthorized, http.StatusForbidden)
}

func bareHeaders(ctx context.Context, x *examination, path string) verdict {
	return x.unbelieved(ctx, path, nil)
}

func forgedProxy(ctx context.Context, x *examination, path string) verdict {
	authority, err := pki.NewAuthority(nothing)
	if err != nil {
		return notApplicable("%v", err)
	}
	forged, err := proxyOf(authority, "front-proxy-client")
	if err != nil {
		return notApplicable("%v", err)
	}
	return x.unbelieved(ctx, path, forged)
}

func proxyOf(authority *pki.Authority, name string) (*pki.KeyPair, error) {
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: name, Client: true})
	if err != nil {
		return nil, err
	}
	return pki.StaticKeyPair(certPEM, keyPEM)
}

// unbelieved compares the response to a request with identity headers and the response to an anonymous request.
func (x *examination) unbelieved(ctx context.Context, path string, certificate *pki.KeyPair) verdict {
	if nobody := x.asOther(ctx, path, nil, nil); nobody.is(http.StatusOK) {
		return notApplicable("the list is open to everybody")
	}
	a := x.asOther(ctx, path, certificate, masters())
	switch {
	case a.err != nil && certificate != nil:
		return noted("the handshake fails")
	case a.err != nil:
		return failed("%s", a)
	case denied(a):
		return ok
	}
	return failed("%s as system:masters is answered %d", path, a.code)
}

func powerless(ctx context.Context, x *examination) verdict {
	if !x.directly || x.server.FrontProxy == nil {
		return notApplicable("it takes the front proxy's certificate: `conformance url --client-certificate`")
	}
	v := x.worst("list", func(r metav1.APIResource) verdict {
		a := x.asOther(ctx, x.path(r, ""), x.server.FrontProxy, remote(nothing))
		switch {
		case denied(a):
			return ok
		case a.is(http.StatusOK):
			return warned("a user without rights may list: everybody was given that right, or nobody is asked about it")
		}
		return failed("%s", a)
	})
	return v
}
