package satoken

import "portico.dev/internal/auth/jws"

// header is a token's JOSE header. We write three members and know what they mean.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

// peekHeader reads which key a token says it was signed with. A member that we do not write is refused: crit, jku, jwk,
// x5u, x5c, zip and their like have each been somebody's hole.
func peekHeader(head string) (header, error) {
	var h header
	err := jws.Decode(head, &h, true)
	return h, err
}
