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
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	maxTokenFileBytes = 8 << 20
	tokenFilePoll     = 10 * time.Second
)

// StaticTokens are the tokens of a token file, by the SHA-256 of each.
//
// A look-up by hash says nothing by the time it takes: to steer it towards a known token a client would have to find
// inputs whose hashes begin alike (attack row B8). And a memory dump shows no token.
type StaticTokens map[[sha256.Size]byte]user.Info

// AuthenticateToken implements [authenticator.Token]. Static tokens have no audience of their own; like upstream's,
// they are good for whichever one is asked about.
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

// LoadTokenFile reads kube-apiserver's --token-auth-file: CSV lines of token,user,uid and optionally a quoted,
// comma-separated list of groups. Errors name the line and never the token.
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
			return nil, err // a csv.ParseError, which names the line and does not quote it
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
		// Upstream warns and lets the last one win; which identity a token means should not depend on the order of lines.
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
	t[key] = u
	return nil
}

// tokenFile is a token file that is followed. A change that does not parse leaves the last good tokens in force.
type tokenFile struct {
	name    string
	tokens  atomic.Pointer[StaticTokens]
	problem atomic.Pointer[error]
	read    os.FileInfo // of what tokens came from; only New and run touch it
}

func openTokenFile(name string) (*tokenFile, error) {
	f := &tokenFile{name: name}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *tokenFile) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return f.tokens.Load().AuthenticateToken(ctx, token)
}

func (f *tokenFile) stale() error {
	if p := f.problem.Load(); p != nil {
		return *p
	}
	return nil
}

func (f *tokenFile) load() error {
	// Stat before reading: a write in between is seen as a change at the next look.
	info, err := os.Stat(f.name)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	tokens, err := LoadTokenFile(f.name)
	if err != nil {
		return err
	}
	f.tokens.Store(&tokens)
	f.read = info
	return nil
}

func (f *tokenFile) changed() bool {
	info, err := os.Stat(f.name)
	return err != nil || !os.SameFile(info, f.read) || info.Size() != f.read.Size() || !info.ModTime().Equal(f.read.ModTime())
}

// run looks every few seconds. Tokens are revoked by editing the file, so this is how long a revoked one still works.
func (f *tokenFile) run(ctx context.Context, log *zap.Logger) error {
	ticker := time.NewTicker(tokenFilePoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !f.changed() {
			continue
		}
		err := f.load()
		before := f.stale()
		switch {
		case err == nil:
			f.problem.Store(nil)
			log.Info("reloaded the token file", zap.String("file", f.name), zap.Int("tokens", len(*f.tokens.Load())))
			continue
		case before == nil || before.Error() != err.Error():
			log.Error("kept the last good tokens", zap.Error(err))
		}
		f.problem.Store(&err)
	}
}
