package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
	"portico.dev/internal/store"
)

// Paths of administration. They are authorized by path and verb. Of the default roles, only cluster-admin includes
// them.
const (
	// MembersPath lists members. Below it, DELETE removes a member by ID or name, and POST to its path with /promote
	// promotes it.
	MembersPath = "/cluster/members"
	// TokensPath lists tokens, and POST creates one. Below it, DELETE deletes a token by ID.
	TokensPath = "/cluster/tokens"
)

// MemberList is the response to GET at MembersPath.
type MemberList struct {
	Members []store.Member `json:"members"`
}

// TokenList is the response to GET at TokensPath.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
}

// TokenRequest requests a token. The zero value requests one with the default lifetime.
type TokenRequest struct {
	// TTLSeconds is its lifetime. With 0 it does not expire. Default DefaultTTL.
	TTLSeconds  *int64 `json:"ttlSeconds,omitempty"`
	Description string `json:"description,omitempty"`
}

// NewTokenAnswer is the response to a TokenRequest.
type NewTokenAnswer struct {
	TokenInfo
	// Token is the complete token. It cannot be retrieved again.
	Token string `json:"token"`
	// Server is the URL at which other front doors join.
	Server string `json:"server"`
}

// maxDescription limits the description of a token.
const maxDescription = 256

var noResource = schema.GroupResource{}

// Admin serves MembersPath, TokensPath and the paths below them.
type Admin struct {
	etcd   Etcd
	tokens *Tokens
	server string
	log    *zap.Logger
}

// NewAdmin returns an Admin. server is the URL at which other front doors join.
func NewAdmin(etcd Etcd, tokens *Tokens, server string, log *zap.Logger) *Admin {
	return &Admin{etcd, tokens, server, log}
}

// ServeHTTP serves requests that have been authorized.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := a.answer(r)
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	respond.JSON(w, http.StatusOK, answer)
}

// done is the response to a change.
type done struct {
	Status string `json:"status"`
}

func (a *Admin) answer(r *http.Request) (any, error) {
	path := strings.TrimRight(r.URL.Path, "/")
	which, member := strings.CutPrefix(path, MembersPath+"/")
	id, token := strings.CutPrefix(path, TokensPath+"/")
	promoted, promote := strings.CutSuffix(which, "/promote")
	ctx := r.Context()
	switch {
	case path == MembersPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		members, err := a.etcd.Members(ctx)
		return MemberList{members}, orEtcdError(err)
	case member && promote && r.Method == http.MethodPost && !strings.Contains(promoted, "/"):
		return a.changed(r, "promoted", promoted, a.etcd.PromoteMember(ctx, promoted))
	case member && !promote && r.Method == http.MethodDelete && !strings.Contains(which, "/"):
		return a.changed(r, "removed", which, a.etcd.RemoveMember(ctx, which))
	case path == TokensPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		tokens, err := a.tokens.List(ctx)
		return TokenList{tokens}, orEtcdError(err)
	case path == TokensPath && r.Method == http.MethodPost:
		return a.newToken(r)
	case token && r.Method == http.MethodDelete && !strings.Contains(id, "/"):
		err := a.tokens.Delete(ctx, id)
		if errors.Is(err, ErrNoToken) {
			return nil, notFound(err)
		}
		return a.changed(r, "token deleted", id, err)
	case path == MembersPath || path == TokensPath || member || token:
		return nil, apierrors.NewMethodNotSupported(noResource, r.Method)
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, noResource, "", "", 0, false)
}

func (a *Admin) changed(r *http.Request, what, which string, err error) (any, error) {
	if err != nil {
		return nil, etcdError(err)
	}
	a.log.Info("cluster changed", zap.String("change", what), zap.String("which", which), zap.String("remote", r.RemoteAddr))
	return done{"Success"}, nil
}

func (a *Admin) newToken(r *http.Request) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	var request TokenRequest
	if err := json.Unmarshal(body, &request); err != nil && len(body) > 0 {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if len(request.Description) > maxDescription {
		return nil, apierrors.NewBadRequest("the description is too long")
	}
	ttl := DefaultTTL
	if s := request.TTLSeconds; s != nil {
		if *s < 0 || *s > int64(maxTTL/time.Second) {
			return nil, apierrors.NewBadRequest(ErrTTL.Error())
		}
		ttl = time.Duration(*s) * time.Second
	}
	token, info, err := a.tokens.Create(r.Context(), ttl, request.Description)
	switch {
	case errors.Is(err, ErrTTL):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, ErrTooManyTokens):
		return nil, conflict(err)
	case err != nil:
		return nil, unavailable(err)
	}
	a.log.Info("created a join token", zap.String("token", info.ID), zap.Time("expires", info.Expires), zap.String("remote", r.RemoteAddr))
	return NewTokenAnswer{info, token.String(), a.server}, nil
}

// orEtcdError returns nil for nil, and etcdError(err) otherwise.
func orEtcdError(err error) error {
	if err == nil {
		return nil
	}
	return etcdError(err)
}
