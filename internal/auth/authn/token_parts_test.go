package authn

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestDecodeTokenPart(t *testing.T) {
	type claims struct {
		Issuer  string  `json:"iss"`
		Expires Seconds `json:"exp"`
	}
	tests := []struct {
		name      string
		text      string
		onlyKnown bool
		want      string // part of the error; empty for none
	}{
		{"an object", `{"iss":"a","exp":9999999999}`, true, ""},
		{"a member that is not known", `{"iss":"a","b":1}`, false, ""},
		{"a member that is not known where only known ones may be", `{"iss":"a","b":1}`, true, "unknown field"},
		{"B6 a member twice", `{"iss":"a","iss":"b"}`, false, "twice"},
		{"B6 a member twice, once in capitals", `{"iss":"a","ISS":"b"}`, false, "twice"},
		{"B6 a member twice far inside", `{"iss":"a","b":[{"c":{"d":1,"d":2}}]}`, false, "twice"},
		{"the same member in two objects", `{"b":[{"c":1},{"c":2}]}`, false, ""},
		{"B6 two objects", `{"iss":"a"}{}`, false, ErrMalformedToken.Error()},
		{"an array", `["iss"]`, false, ErrMalformedToken.Error()},
		{"nothing", ``, false, ErrMalformedToken.Error()},
		{"B7 sixteen deep", strings.Repeat(`{"a":`, 16) + "1" + strings.Repeat("}", 16), false, ""},
		{"B7 seventeen deep", strings.Repeat(`{"a":`, 17) + "1" + strings.Repeat("}", 17), false, "too deeply"},
		{"B4 a time with a fraction", `{"exp":1.5}`, false, "whole number"},
		{"B4 a time before all times", `{"exp":0}`, false, "out of range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c claims
			err := DecodeTokenPart(base64.RawURLEncoding.EncodeToString([]byte(tt.text)), &c, tt.onlyKnown)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("DecodeTokenPart error = %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("base64 with stray bits", func(t *testing.T) {
		if err := DecodeTokenPart("e31", &struct{}{}, false); !errors.Is(err, ErrMalformedToken) {
			t.Fatalf("DecodeTokenPart with stray bits error = %v, want ErrMalformedToken", err)
		}
	})
}

func TestSplitToken(t *testing.T) {
	for token, ok := range map[string]bool{"a.b.c": true, "..": true, "": false, "a.b": false, "a.b.c.d.e": false, strings.Repeat(".", 1_000_000): false} {
		head, body, err := SplitToken(token)
		if (err == nil) != ok || len(token) == 5 && head+body != "ab" {
			t.Errorf("SplitToken(%.10q) = %q, %q, %v, want success = %t", token, head, body, err, ok)
		}
	}
}
