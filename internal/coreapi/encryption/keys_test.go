package encryption

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFingerprintsOfKeys(t *testing.T) {
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
		t.Fatalf("%v, %v", before, during)
	}
	if slices.Equal(before.writes, during.writes) || !slices.Contains(during.reads, before.writes[0]) || !slices.Contains(during.reads, "identity") {
		t.Errorf("the first key is what is written with, and all are read: %v, %v", before, during)
	}
	if plain := read("[{identity: {}}, {aesgcm: {keys: [" + one + "]}}]"); !slices.Equal(plain.writes, []string{"identity"}) {
		t.Errorf("identity first: %v", plain)
	}
	if other := read("[{secretbox: {keys: [" + one + "]}}]"); slices.Contains(before.reads, other.writes[0]) {
		t.Errorf("the same secret for something else: %v", other)
	}
	if service := read("[{kms: {apiVersion: v2, name: vault, endpoint: unix:///vault.sock}}]"); !slices.Equal(service.writes, []string{"kms:v2:vault"}) {
		t.Errorf("a key service: %v", service)
	}
	if strings.Contains(strings.Join(append(before.reads, during.reads...), " "), "AAAAAAAA") {
		t.Error("a key is told")
	}
}
