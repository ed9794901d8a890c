package encryption

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFingerprintsChangeWithWriteKeys(t *testing.T) {
	read := func(providers string) keys {
		t.Helper()
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: " + providers + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := readKeys(file)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	const one, two = "{name: one, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}", "{name: two, secret: AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}"
	before := read("[{aesgcm: {keys: [" + one + "]}}, {identity: {}}]")
	during := read("[{aesgcm: {keys: [" + two + ", " + one + "]}}, {identity: {}}]")
	if len(before.writes) != 1 || len(before.reads) != 2 || len(during.reads) != 3 {
		t.Fatalf("before = %v, during = %v, want 1 write key and 2 read keys before, 3 read keys during", before, during)
	}
	if slices.Equal(before.writes, during.writes) || !slices.Contains(during.reads, before.writes[0]) || !slices.Contains(during.reads, "identity") {
		t.Errorf("before = %v, during = %v, want another write key, and the old one and identity among the read keys", before, during)
	}
	if plain := read("[{identity: {}}, {aesgcm: {keys: [" + one + "]}}]"); !slices.Equal(plain.writes, []string{"identity"}) {
		t.Errorf("write keys with identity first = %v, want identity", plain.writes)
	}
	if other := read("[{secretbox: {keys: [" + one + "]}}]"); slices.Contains(before.reads, other.writes[0]) {
		t.Errorf("fingerprint of the same secret for secretbox = %v, want another one than for aesgcm", other.writes)
	}
	if service := read("[{kms: {apiVersion: v2, name: vault, endpoint: unix:///vault.sock}}]"); !slices.Equal(service.writes, []string{"kms:v2:vault"}) {
		t.Errorf("write keys with a key service = %v, want kms:v2:vault", service.writes)
	}
	if strings.Contains(strings.Join(append(before.reads, during.reads...), " "), "AAAAAAAA") {
		t.Error("a fingerprint contains a key, want hashes only")
	}
}
