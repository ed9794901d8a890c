package lifecycle

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/cert"
)

// expiredFor is how long after its end a certificate is still published: clocks differ.
const expiredFor = 5 * time.Minute

// merge is what is published already together with what this replica publishes. Keys it does not know are left alone.
func (p *trustPublisher) merge(current, own map[string]string) map[string]string {
	merged := maps.Clone(current)
	if merged == nil {
		merged = map[string]string{}
	}
	for key, value := range own {
		if key == clientCAKey || key == requestHeaderCAKey {
			merged[key] = p.mergeCertificates(key, current[key], value)
		} else {
			merged[key] = p.mergeList(key, current[key], value)
		}
	}
	if size(merged) > maxTrustBytes {
		p.log.Warn("what is published has grown too large, starting again with our own part", zap.Int("bytes", size(merged)))
		return own
	}
	return merged
}

func (p *trustPublisher) mergeCertificates(key, current, own string) string {
	var kept []*x509.Certificate
	horizon := p.now().Add(-expiredFor)
	for _, bundle := range []string{current, own} {
		if bundle == "" {
			continue
		}
		certs, err := cert.ParseCertsPEM([]byte(bundle))
		if err != nil {
			p.log.Warn("dropped what does not parse as certificates", zap.String("key", key), zap.Error(err))
		}
		for _, c := range certs {
			if c.NotAfter.After(horizon) && !slices.ContainsFunc(kept, c.Equal) {
				kept = append(kept, c)
			}
		}
	}
	var out bytes.Buffer
	for _, c := range kept {
		// Writing to a buffer cannot fail.
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return out.String()
}

// mergeList is the union, as upstream makes it. For allowed names this is narrow on purpose: "any name", the empty list,
// loses against a list of names that somebody has published.
func (p *trustPublisher) mergeList(key, current, own string) string {
	var before, ours []string
	if current != "" {
		if err := json.Unmarshal([]byte(current), &before); err != nil {
			p.log.Warn("replaced what is not a list", zap.String("key", key), zap.Error(err))
		}
	}
	if err := json.Unmarshal([]byte(own), &ours); err != nil {
		return current
	}
	union := []string{}
	for _, s := range append(before, ours...) {
		if !slices.Contains(union, s) {
			union = append(union, s)
		}
	}
	encoded, err := json.Marshal(union)
	if err != nil {
		return current
	}
	return string(encoded)
}

func size(data map[string]string) int {
	n := 0
	for k, v := range data {
		n += len(k) + len(v)
	}
	return n
}
