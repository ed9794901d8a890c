package authn

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ErrMalformedToken is returned for what is no signed token at all.
var ErrMalformedToken = errors.New("not a JWT")

// SplitToken returns the encoded header and claims of a signed token (JWS). Parts are counted before splitting: a
// million dots cost one pass and no memory (attack row B7). Five parts would be a JWE, which is never decrypted here.
//
// The libraries that verify signatures are lenient readers; this one is strict, so that what is read before the
// signature is verified and what is read after it cannot differ.
func SplitToken(token string) (head, body string, err error) {
	if strings.Count(token, ".") != 2 {
		return "", "", ErrMalformedToken
	}
	head, rest, _ := strings.Cut(token, ".")
	body, _, _ = strings.Cut(rest, ".")
	return head, body, nil
}

// TokenIssuer reads the issuer of a token, and nothing else: whether a token is meant for a reader is the one question
// that claims may answer before the signature does.
func TokenIssuer(body string) (string, error) {
	var c struct {
		Issuer string `json:"iss"`
	}
	err := DecodeTokenPart(body, &c, false)
	return c.Issuer, err
}

// DecodeTokenPart decodes a part into a value; onlyKnown refuses members that the value has no field for. It is
// stricter than the libraries that verify: a member that is named twice has two meanings (CVE-2024-5037, attack row
// B6), and a base64 group with stray bits gives one token two spellings.
func DecodeTokenPart(part string, into any, onlyKnown bool) error {
	data, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return ErrMalformedToken
	}
	if err := checkTokenObject(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if onlyKnown {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode token: %w", err)
	}
	return nil
}

// maxTokenDepth bounds nesting; our claims are three deep.
const maxTokenDepth = 16

// checkTokenObject accepts exactly one JSON object in which no object, at any depth, names a member twice. Case is folded
// because encoding/json matches names that way.
func checkTokenObject(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type frame struct {
		object bool
		name   bool // in an object: the next token is a name
		seen   map[string]bool
	}
	var stack []*frame
	for {
		tok, err := d.Token()
		if err != nil {
			return ErrMalformedToken
		}
		if delim, ok := tok.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			if len(stack) == 0 {
				break
			}
			continue
		}
		var top *frame
		if len(stack) > 0 {
			top = stack[len(stack)-1]
		} else if tok != json.Delim('{') {
			return ErrMalformedToken
		}
		if top != nil && top.object {
			if top.name {
				name := strings.ToLower(tok.(string))
				if top.seen[name] {
					return errors.New("the token names a member twice")
				}
				top.seen[name] = true
				top.name = false
				continue
			}
			top.name = true
		}
		if delim, ok := tok.(json.Delim); ok {
			if len(stack) == maxTokenDepth {
				return errors.New("the token is nested too deeply")
			}
			stack = append(stack, &frame{object: delim == '{', name: delim == '{', seen: map[string]bool{}})
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrMalformedToken
	}
	return nil
}

// ClockSkew is how far the clock of a token's issuer may be from ours: a minute, as in kube-apiserver, for service account tokens
// and for when tokens of OpenID Connect begin to be valid.
const ClockSkew = time.Minute

// Seconds is a moment in whole seconds. Only plain, positive integers that a calendar knows are read: fractions,
// exponents and 2^63 are ways to make two readers disagree about the time (attack row B4).
type Seconds int64

const lastSecond = 253402300799 // the end of the year 9999

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(data []byte) error {
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return errors.New("a time is not a whole number of seconds")
	}
	if n <= 0 || n > lastSecond {
		return errors.New("a time is out of range")
	}
	*s = Seconds(n)
	return nil
}

// Time is the same as a time.Time.
func (s Seconds) Time() time.Time { return time.Unix(int64(s), 0) }
