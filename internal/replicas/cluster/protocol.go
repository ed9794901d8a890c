package cluster

import (
	"fmt"
	"net"
	"regexp"
	"strings"
)

// ServerName is the server name in the TLS handshakes of joining front doors.
const ServerName = "join.portico.internal"

// Paths of the protocol.
const (
	keysPath    = "/join/v1/keys"
	membersPath = "/join/v1/members"
)

const (
	// maxRequest and maxAnswer limit the bytes that are read.
	maxRequest = 64 << 10
	maxAnswer  = 4 << 20
)

// Versions are the versions that must match in all members.
type Versions struct {
	// Portico is the version of the program. It appears only in messages.
	Portico string `json:"portico"`
	// Kubernetes and Etcd are major and minor version. The first determines the format of stored objects, the second
	// the format of the log.
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd"`
	// Storage is the version of the data that Portico itself stores.
	Storage int `json:"storage"`
}

// check returns an error if a front door with other versions cannot join a cluster with these.
func (v Versions) check(joining Versions) error {
	for _, c := range []struct {
		what, here, there string
	}{
		{"etcd", v.Etcd, joining.Etcd},
		{"Kubernetes", v.Kubernetes, joining.Kubernetes},
		{"the form of what Portico stores", fmt.Sprint(v.Storage), fmt.Sprint(joining.Storage)},
	} {
		if c.here != c.there {
			return fmt.Errorf("versions differ: %s is %s in this cluster (Portico %s), and %s at the one that joins (Portico %s); join with the version of the cluster, and upgrade afterwards",
				c.what, c.here, v.Portico, c.there, joining.Portico)
		}
	}
	return nil
}

// Minor returns the major and the minor part of a version.
func Minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// keysRequest requests the keys and settings of the cluster.
type keysRequest struct {
	Nonce    []byte   `json:"nonce"`
	Versions Versions `json:"versions"`
}

// keysAnswer contains a sealed HandOver.
type keysAnswer struct {
	Sealed []byte `json:"sealed"`
}

// memberRequest requests the addition of a member to etcd.
type memberRequest struct {
	Name     string   `json:"name"`
	Address  string   `json:"address"`
	Versions Versions `json:"versions"`
}

// memberAnswer contains the URLs of all members by name.
type memberAnswer struct {
	Members map[string][]string `json:"members"`
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,126}[a-zA-Z0-9])?$`)

// CheckName returns an error if name is not a valid name of a member.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a member: use letters, digits, dots and hyphens, at most 128", name)
	}
	return nil
}

func (r memberRequest) check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(r.Address)
	if err != nil || port == "" || port == "0" || net.ParseIP(host) == nil || net.ParseIP(host).IsUnspecified() {
		return fmt.Errorf("%q is no IP address with a port", r.Address)
	}
	return nil
}
