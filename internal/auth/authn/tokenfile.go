package authn

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/pki"
)

const maxTokenFileBytes = 8 << 20

// StaticTokens maps the SHA-256 of each token in a token file to its user, who is already in system:authenticated.
//
// The duration of a lookup by hash does not reveal tokens: a client would have to find inputs whose hashes share a
// prefix with the hash of a valid token (attack row B8). A memory dump does not contain the tokens.
type StaticTokens map[[sha256.Size]byte]user.Info

// AuthenticateToken implements [authenticator.Token]. Static tokens are valid for every requested audience, like
// upstream's.
func (t StaticTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	u, ok := t[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, false, nil
	}
	response := &authenticator.Response{User: u}
	if wanted, ok := authenticator.AudiencesFrom(ctx); ok {
		response.Audiences = wanted
	}
	return response, true, nil
}

// LoadTokenFile reads a file in the format of kube-apiserver's --token-auth-file: CSV lines of token,user,uid and an
// optional quoted, comma-separated list of groups. Errors contain the line number and never the token.
func LoadTokenFile(name string) (StaticTokens, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxTokenFileBytes {
		return nil, fmt.Errorf("token file %s: has %d bytes; at most %d are read", name, info.Size(), maxTokenFileBytes)
	}
	tokens, err := readTokens(io.LimitReader(f, maxTokenFileBytes))
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", name, err)
	}
	return tokens, nil
}

func readTokens(r io.Reader) (StaticTokens, error) {
	tokens := StaticTokens{}
	reader := csv.NewReader(r)
	reader.FieldsPerRecord = -1
	reader.TrimLeadingSpace = true
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return tokens, nil
		}
		if err != nil {
			return nil, err // a csv.ParseError, which contains the line number but not the line
		}
		line, _ := reader.FieldPos(0)
		if err := tokens.add(record); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (t StaticTokens) add(record []string) error {
	switch {
	case len(record) < 3:
		return fmt.Errorf("has %d fields; expected token,user,uid[,\"group1,group2\"]", len(record))
	case strings.TrimSpace(record[0]) == "":
		return errors.New("has no token")
	case strings.TrimSpace(record[1]) == "":
		return errors.New("has no user name")
	}
	key := sha256.Sum256([]byte(record[0]))
	if _, taken := t[key]; taken {
		// Upstream logs a warning and uses the last line. Here the identity of a token does not depend on the order
		// of lines.
		return errors.New("repeats a token that an earlier line has")
	}
	u := &user.DefaultInfo{Name: record[1], UID: record[2]}
	if len(record) > 3 {
		for group := range strings.SplitSeq(record[3], ",") {
			if group = strings.TrimSpace(group); group != "" {
				u.Groups = append(u.Groups, group)
			}
		}
	}
	t[key] = WithAuthenticated(u)
	return nil
}

// tokenFile is a token file that is reloaded when it changes.
type tokenFile struct {
	*pki.WatchedFile[StaticTokens]
}

func (f tokenFile) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return f.Current().AuthenticateToken(ctx, token)
}
