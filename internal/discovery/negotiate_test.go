package discovery

import "testing"

func TestNegotiateAggregated(t *testing.T) {
	const (
		v2     = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		v2beta = ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
		js, pb = "application/json", "application/vnd.kubernetes.protobuf"
		ya     = "application/yaml"
	)
	for name, c := range map[string]struct{ accept, want string }{
		"nothing named":                      {"", ""},
		"anything":                           {"*/*", ""},
		"a browser":                          {"text/html,application/xhtml+xml,*/*;q=0.8", ""},
		"plain JSON":                         {js, ""},
		"what client-go sends":               {js + v2 + "," + js, js},
		"what client-go with protobuf sends": {pb + v2 + "," + js + v2 + "," + pb + "," + js, pb},
		"aggregated wins over a heavier plain clause":  {js + ";q=1, " + js + v2 + ";q=0.1", js},
		"the heavier of two aggregated":                {js + v2 + ";q=0.5," + pb + v2 + ";q=0.9", pb},
		"the first of two equal":                       {ya + v2 + "," + pb + v2, ya},
		"anything aggregated is JSON":                  {"*/*" + v2, js},
		"any application type, aggregated":             {"application/*" + v2, js},
		"v2beta1 alone":                                {js + v2beta, ""},
		"v2beta1 before v2":                            {js + v2beta + "," + pb + v2, pb},
		"other parameters do not matter":               {js + v2 + ";charset=utf-8", js},
		"profile=nopeer is what we answer in any case": {js + v2 + ";profile=nopeer", js},
		"refused by weight":                            {js + v2 + ";q=0", ""},
		"a weight that is none":                        {js + v2 + ";q=heavy", ""},
		"another group":                                {js + ";g=example.com;v=v2;as=APIGroupDiscoveryList", ""},
		"parameters missing":                           {js + ";as=APIGroupDiscoveryList", ""},
		"a media type that we do not write":            {"application/cbor" + v2, ""},
		"a clause that does not parse does no harm":    {";;;,=," + js + v2, js},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := negotiateAggregated(c.accept)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("%q gives %q, %v, want %q", c.accept, got, ok, c.want)
			}
		})
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	f.Add(";q=NaN")
	f.Fuzz(func(t *testing.T, accept string) {
		if mediaType, ok := negotiateAggregated(accept); ok {
			if _, known := concrete(mediaType); !known {
				t.Errorf("%q gives %q", accept, mediaType)
			}
		}
	})
}
