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

// ErrMalformedToken is returned for a string that is not a signed token.
var ErrMalformedToken = errors.New("not a JWT")

// SplitToken returns the encoded header and claims of a signed token (JWS). It counts the parts before splitting, so
// a token with a million dots costs one pass and no memory (attack row B7). Five parts would be a JWE, which is not
// supported.
//
// The libraries that verify signatures parse leniently. This parser is strict, so that the claims read before and
// after signature verification cannot differ.
func SplitToken(token string) (head, body string, err error) {
	if strings.Count(token, ".") != 2 {
		return "", "", ErrMalformedToken
	}
	head, rest, _ := strings.Cut(token, ".")
	body, _, _ = strings.Cut(rest, ".")
	return head, body, nil
}

// TokenIssuer returns the issuer of a token. The issuer is the only claim that may be used before the signature is
// verified, to select the verifier.
func TokenIssuer(body string) (string, error) {
	var c struct {
		Issuer string `json:"iss"`
	}
	err := DecodeTokenPart(body, &c, false)
	return c.Issuer, err
}

// DecodeTokenPart decodes a part of a token into a value. onlyKnown refuses members for which the value has no field.
// It is stricter than the libraries that verify signatures: a repeated member is ambiguous (CVE-2024-5037, attack row
// B6), and stray bits in a base64 group give one token two spellings.
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

// maxTokenDepth limits nesting. Tokens issued by this server have a depth of three.
const maxTokenDepth = 16

// checkTokenObject accepts exactly one JSON object in which no object, at any depth, repeats a member. Names are
// compared case-insensitively because encoding/json matches names that way.
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

// ClockSkew is the accepted difference between the clocks of a token's issuer and this server. It is one minute, as
// in kube-apiserver, and applies to service account tokens and to the start of validity of OpenID Connect tokens.
const ClockSkew = time.Minute

// Seconds is a time in whole seconds. Only plain positive integers up to the year 9999 are accepted: fractions,
// exponents and 2^63 could make two parsers disagree about the time (attack row B4).
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

// Time returns s as a time.Time.
func (s Seconds) Time() time.Time { return time.Unix(int64(s), 0) }
