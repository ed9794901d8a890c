// Package jws reads the parts of a signed token before anybody has verified it, and without believing a word.
//
// The libraries that verify signatures are lenient readers; this one is strict, so that what was read before the
// signature was verified and what is read after it cannot differ.
package jws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrMalformed is the answer for what is no signed token at all.
var ErrMalformed = errors.New("not a JWT")

// Split returns the encoded header and claims of a token. Counted before splitting: a million dots cost one pass and no
// memory (attack row B7). Five parts would be a JWE, which is never decrypted here.
func Split(token string) (head, body string, err error) {
	if strings.Count(token, ".") != 2 {
		return "", "", ErrMalformed
	}
	head, rest, _ := strings.Cut(token, ".")
	body, _, _ = strings.Cut(rest, ".")
	return head, body, nil
}

// Issuer reads who a token says it is from, and nothing else: whether it is meant for a reader is the one question that
// claims may answer before the signature does.
func Issuer(body string) (string, error) {
	var c struct {
		Issuer string `json:"iss"`
	}
	err := Decode(body, &c, false)
	return c.Issuer, err
}

// Decode reads a part into a value; onlyKnown refuses members that the value has no field for. It is stricter than the
// libraries that verify: a member that is named twice has two meanings (CVE-2024-5037, attack row B6), and a base64
// group with stray bits gives one token two spellings.
func Decode(part string, into any, onlyKnown bool) error {
	data, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return ErrMalformed
	}
	if err := checkObject(data); err != nil {
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

// maxDepth bounds nesting; our claims are three deep.
const maxDepth = 16

// checkObject accepts exactly one JSON object in which no object, at any depth, names a member twice. Case is folded
// because encoding/json matches names that way.
func checkObject(data []byte) error {
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
			return ErrMalformed
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
			return ErrMalformed
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
			if len(stack) == maxDepth {
				return errors.New("the token is nested too deeply")
			}
			stack = append(stack, &frame{object: delim == '{', name: delim == '{', seen: map[string]bool{}})
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrMalformed
	}
	return nil
}
