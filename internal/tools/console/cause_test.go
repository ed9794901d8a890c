package console

import "testing"

func TestCauseComesBeforeURL(t *testing.T) {
	const url = "https://orders.shop.svc:443/apis/orders.example.com/v1"
	const check = "failing or missing response from " + url + ": "
	for message, want := range map[string]string{
		check + "dial tcp: connect: connection refused":                                                        "connection refused (dial tcp), from " + url,
		check + "dial tcp: connection refused":                                                                 "connection refused (dial tcp), from " + url,
		check + `Get "` + url + `": dial tcp 10.0.0.1:443: connect: connection refused`:                        "connection refused (dial tcp 10.0.0.1:443), from " + url,
		check + `Get "` + url + `": dial tcp [fd00::1]:443: i/o timeout`:                                       "i/o timeout (dial tcp [fd00::1]:443), from " + url,
		check + `Get "` + url + `": read tcp 10.0.0.9:1->10.0.0.1:443: read: connection reset by peer`:         "connection reset by peer (read tcp 10.0.0.9:1->10.0.0.1:443), from " + url,
		check + "bad status from " + url + ": 404":                                                             "bad status 404, from " + url,
		"bad status from " + url + ": 503":                                                                     "bad status 503, from " + url,
		check + "tls: failed to verify certificate: x509: certificate signed by unknown authority":             "tls: failed to verify certificate: x509: certificate signed by unknown authority, from " + url,
		check + "context deadline exceeded: no response within 5s, the limit of a check":                       "context deadline exceeded: no response within 5s, the limit of a check, from " + url,
		"FailedDiscoveryCheck: " + check + "dial tcp: connect: connection refused":                             "FailedDiscoveryCheck: connection refused (dial tcp), from " + url,
		"dial 10.0.2.7:8443: dial tcp 10.0.2.7:8443: connect: connection refused":                              "connection refused (dial tcp 10.0.2.7:8443)",
		`endpointslices for service/server-0 in "team-0" have no addresses with port name "https"`:             "",
		"replica front-2 does not reach it: dial tcp: connection refused; its clients are answered by front-1": "",
		"1 of 3 endpoints is not used: 10.1.2.7:4443 (requests are accepted and none is answered)":             "",
		"":                  "",
		"all checks passed": "",
	} {
		if want == "" {
			want = message
		}
		if got := causeFirst(message); got != want {
			t.Errorf("causeFirst(%q) = %q, want %q", message, got, want)
		}
	}
}
