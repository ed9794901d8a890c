package doctor

import (
	"context"
	"fmt"
	"strings"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
)

const defaultServicePort = 443

func (x *exam) port() int32 {
	if p := x.object.Spec.Service.Port; p != nil {
		return *p
	}
	return defaultServicePort
}

// registration looks at the APIService itself.
func (x *exam) registration(context.Context) finding {
	spec := x.object.Spec
	if spec.Service == nil {
		return ok("the API server serves " + x.gv.String() + " itself")
	}
	switch {
	case spec.InsecureSkipTLSVerify:
		return ok("insecureSkipTLSVerify accepts whoever answers at the Service's address")
	case len(spec.CABundle) == 0:
		return ok("no caBundle: the certificate is verified against the authorities of the API server's machine")
	}
	certs, err := pki.ParseBundle(spec.CABundle)
	if err != nil {
		return broken(apiservice.CABundleMessage(err),
			append([]string{"# ca.crt is the certificate of the authority that signs the serving certificate:", x.setBundle("ca.crt")}, x.injectBundle()...)...)
	}
	var names []string
	for _, c := range certs {
		names = append(names, fmt.Sprintf("%q", nameOf(c)))
	}
	return ok("caBundle holds " + strings.Join(names, ", "))
}
