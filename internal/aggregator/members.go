package aggregator

import (
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/store"
)

// membersIn returns the members of etcd that a data directory knows, and the certificates for connections to them.
func membersIn(dataDir string) (member *store.Cluster, addresses []string, err error) {
	known, err := store.ReadMembership(filepath.Join(dataDir, "etcd"))
	if err != nil {
		return nil, nil, err
	}
	if known == nil {
		return nil, nil, fmt.Errorf("%s: %w", dataDir, store.ErrSingle)
	}
	keys, err := pki.ReadDirectory(filepath.Join(dataDir, "pki"))
	if err != nil {
		return nil, nil, err
	}
	member = &store.Cluster{Name: known.Name, Address: known.Address}
	member.CAFile, member.CertFile, member.KeyFile = keys.EtcdFiles()
	return member, append([]string{known.Address}, known.Others...), nil
}

// MembersIn connects to the members of etcd with the files of a data directory, even if its front door does not run.
// The caller must close the result.
func MembersIn(dataDir string, log *zap.Logger) (*store.RemoteMembers, error) {
	member, addresses, err := membersIn(dataDir)
	if err != nil {
		return nil, err
	}
	return store.DialMembers(member, log, addresses...)
}
