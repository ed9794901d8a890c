package encryption

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// unencrypted is the name of the provider that does not encrypt.
const unencrypted = "identity"

// keys contains the fingerprints of the keys in a file.
type keys struct {
	writes, reads []string
}

// Keys returns the fingerprints of the keys used for writes, and of all keys used for reads. Without a file, and for resources
// that are not encrypted, the fingerprint is "identity". The result does not contain the resources of a key.
func (e *Encryption) Keys() (writes, reads []string) {
	if g := e.current.Load(); g != nil {
		return g.keys.writes, g.keys.reads
	}
	return []string{unencrypted}, []string{unencrypted}
}

func readKeys(file string) (k keys, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return keys{}, err
	}
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.Unmarshal(data, &c); err != nil {
		return keys{}, err
	}
	for _, r := range c.Resources {
		for i, p := range r.Providers {
			found := fingerprints(p)
			if i == 0 && len(found) > 0 {
				k.writes = append(k.writes, found[0])
			}
			k.reads = append(k.reads, found...)
		}
	}
	for _, list := range []*[]string{&k.writes, &k.reads} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return k, nil
}

// fingerprints returns the fingerprints of a provider's keys. They do not reveal the keys.
func fingerprints(p apiserverv1.ProviderConfiguration) (out []string) {
	add := func(kind string, list []apiserverv1.Key) {
		for _, key := range list {
			h := hmac.New(sha256.New, []byte(key.Secret))
			h.Write([]byte("fingerprint of a key of " + kind + "\x00" + key.Name)) // a stored value contains the name of its key
			out = append(out, kind+":"+hex.EncodeToString(h.Sum(nil)[:8]))
		}
	}
	switch {
	case p.AESGCM != nil:
		add("aesgcm", p.AESGCM.Keys)
	case p.AESCBC != nil:
		add("aescbc", p.AESCBC.Keys)
	case p.Secretbox != nil:
		add("secretbox", p.Secretbox.Keys)
	case p.KMS != nil:
		out = append(out, fmt.Sprintf("kms:%s:%s", p.KMS.APIVersion, p.KMS.Name))
	case p.Identity != nil:
		out = append(out, unencrypted)
	}
	return out
}
