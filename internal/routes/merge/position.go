package merge

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The digits of a position: a one, the epoch, the hash of the sources, and the resource version of each source.
const (
	epochDigits   = 10
	sourcesDigits = 6
	versionDigits = 20 // of any unsigned 64-bit number
	headDigits    = 1 + epochDigits + sourcesDigits
)

// opaque is the prefix of positions with a resource version that is not a number.
const opaque = "merged."

// IsPosition reports whether version is a resource version or a continue token of a merged collection. Resource versions of
// servers are shorter.
func IsPosition(version string) bool {
	return strings.HasPrefix(version, opaque) || len(version) >= headDigits+versionDigits && (len(version)-headDigits)%versionDigits == 0 &&
		version[0] == '1' && strings.Trim(version, "0123456789") == ""
}

// Expired returns the error for a resource version or a continue token of other sources.
func Expired(what string) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("The provided %s is of another place than where the objects are now, or of another time: list again without one", what))
}

// sources returns a hash of the collection's ID and its sources in order.
func (c *Collection) sources() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.ID))
	for _, s := range c.Sources {
		_, _ = h.Write([]byte("\n" + s.Name))
	}
	return fmt.Sprintf("%0*d", sourcesDigits, h.Sum32()%1_000_000)
}

func (c *Collection) head() string {
	return fmt.Sprintf("1%0*d%s", epochDigits, c.Epoch, c.sources())
}

// position combines the resource versions of all sources.
func (c *Collection) position(versions []string) string {
	var b strings.Builder
	b.WriteString(c.head())
	for _, v := range versions {
		if !isNumber(v) {
			return c.opaquePosition(versions)
		}
		b.WriteString(strings.Repeat("0", versionDigits-len(v)) + v)
	}
	return b.String()
}

// isNumber reports whether v is an unsigned number. A missing version counts as 0.
func isNumber(v string) bool {
	if v == "" || v == "0" {
		return true
	}
	_, err := strconv.ParseUint(v, 10, 64)
	return err == nil && v[0] != '0' && v[0] != '+'
}

type opaqueForm struct {
	Head     string   `json:"h"`
	Versions []string `json:"v"`
}

func (c *Collection) opaquePosition(versions []string) string {
	data, _ := json.Marshal(opaqueForm{c.head(), versions}) // strings can always be encoded
	return opaque + base64.RawURLEncoding.EncodeToString(data)
}

// versions is the inverse of position. It returns an error for positions of other sources.
func (c *Collection) versions(position string) ([]string, error) {
	expired := Expired("resource version")
	if text, ok := strings.CutPrefix(position, opaque); ok {
		var form opaqueForm
		data, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(data, &form) != nil || form.Head != c.head() || len(form.Versions) != len(c.Sources) {
			return nil, expired
		}
		return form.Versions, nil
	}
	digits, ok := strings.CutPrefix(position, c.head())
	if !ok || len(digits) != versionDigits*len(c.Sources) || !IsPosition(position) {
		return nil, expired
	}
	var out []string
	for part := range slices.Chunk([]byte(digits), versionDigits) {
		v := strings.TrimLeft(string(part), "0")
		v = cmp.Or(v, "0")
		out = append(out, v)
	}
	return out, nil
}

// continuation is the content of a continue token.
type continuation struct {
	Head string `json:"h"`
	// Source is the index of the current source, and Continue its token, which is empty at its beginning.
	Source   int    `json:"s"`
	Continue string `json:"c,omitempty"`
	// Versions contains the resource versions of the sources at the start of the list.
	Versions []string `json:"v"`
}

func (c *Collection) encodeContinue(t continuation) string {
	t.Head = c.head()
	data, _ := json.Marshal(t) // strings and numbers can always be encoded
	return opaque + base64.RawURLEncoding.EncodeToString(data)
}

func (c *Collection) decodeContinue(token string) (t continuation, err error) {
	text, ours := strings.CutPrefix(token, opaque)
	data, err := base64.RawURLEncoding.DecodeString(text)
	if !ours || err != nil || json.Unmarshal(data, &t) != nil || t.Head != c.head() || len(t.Versions) != len(c.Sources) ||
		t.Source < 0 || t.Source >= len(c.Sources) {
		return t, Expired("continue parameter")
	}
	return t, nil
}
