package authn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// MaxTokenBytes is the maximum length of a bearer token. Longer tokens are refused unparsed (attack row B7).
const MaxTokenBytes = 16 << 10

const (
	authorizationHeader = "Authorization"
	subprotocolHeader   = "Sec-Websocket-Protocol"
	// Prefix of the subprotocol that carries the token, because a browser cannot set Authorization on a WebSocket.
	subprotocolPrefix = "base64url.bearer.authorization.k8s.io."
)

var (
	errTokenTooLong = fmt.Errorf("the bearer token is longer than %d bytes", MaxTokenBytes)
	errTwoTokens    = errors.New("more than one bearer token was presented")
)

// Token returns the bearer token of r, from the Authorization header or a WebSocket subprotocol. ok is false if there
// is none. A malformed, empty or second token is an error, because the client intended to authenticate.
func Token(r *http.Request) (token string, ok bool, err error) {
	header, inHeader, err := headerToken(r.Header)
	if err != nil {
		return "", false, err
	}
	protocol, inProtocol, err := subprotocolToken(r)
	if err != nil {
		return "", false, err
	}
	switch {
	case inHeader && inProtocol:
		return "", false, errTwoTokens
	case inHeader:
		return header, true, nil
	}
	return protocol, inProtocol, nil
}

func headerToken(h http.Header) (string, bool, error) {
	values := h[authorizationHeader]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
	default:
		return "", false, errTwoTokens
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		// Not treated as anonymous: a client that sends other credentials expects them to be checked.
		return "", false, errors.New("the Authorization header is not of the Bearer scheme")
	}
	token := strings.TrimSpace(rest)
	switch {
	case token == "":
		return "", false, errors.New("the bearer token is empty")
	case len(token) > MaxTokenBytes:
		return "", false, errTokenTooLong
	case strings.IndexByte(token, ' ') >= 0 || strings.IndexByte(token, '\t') >= 0:
		return "", false, errors.New("the bearer token has a blank in it")
	}
	return token, true, nil
}

func subprotocolToken(r *http.Request) (string, bool, error) {
	if len(r.Header[subprotocolHeader]) == 0 || !isWebSocket(r) {
		return "", false, nil
	}
	var encoded string
	found, others := 0, 0
	for _, p := range subprotocols(r.Header) {
		if rest, ok := strings.CutPrefix(p, subprotocolPrefix); ok {
			encoded = rest
			found++
		} else {
			others++
		}
	}
	switch {
	case found == 0:
		return "", false, nil
	case found > 1:
		return "", false, errTwoTokens
	case others == 0:
		// The server must select one of the offered subprotocols, and must not echo the token.
		return "", false, errors.New("a subprotocol is needed beside the one that carries the bearer token")
	case len(encoded) > base64.RawURLEncoding.EncodedLen(MaxTokenBytes):
		return "", false, errTokenTooLong
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(token) == 0 || !utf8.Valid(token) {
		return "", false, errors.New("the bearer token in the websocket subprotocol is not valid base64url")
	}
	return string(token), true, nil
}

func subprotocols(h http.Header) []string {
	var all []string
	for _, line := range h[subprotocolHeader] {
		for p := range strings.SplitSeq(line, ",") {
			all = append(all, strings.TrimSpace(p))
		}
	}
	return all
}

func isWebSocket(r *http.Request) bool {
	return hasListItem(r.Header["Connection"], "upgrade") && hasListItem(r.Header["Upgrade"], "websocket")
}

func hasListItem(lines []string, item string) bool {
	for _, line := range lines {
		for v := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(v), item) {
				return true
			}
		}
	}
	return false
}

// stripToken removes the token from the locations that Token reads, and preserves the other subprotocols.
func stripToken(h http.Header) {
	delete(h, authorizationHeader)
	if len(h[subprotocolHeader]) == 0 {
		return
	}
	var rest []string
	removed := false
	for _, p := range subprotocols(h) {
		if strings.HasPrefix(p, subprotocolPrefix) {
			removed = true
			continue
		}
		rest = append(rest, p)
	}
	if removed {
		h[subprotocolHeader] = []string{strings.Join(rest, ", ")}
	}
}
