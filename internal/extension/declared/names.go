package declared

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// subdomainName makes a valid object name of what a source calls something. A name that is valid stays. Of any other
// the letters that are allowed stay, behind which comes a digest of the whole: "a b" and "a/b" remain two objects, and
// each has the same name tomorrow whatever else there is then.
func subdomainName(raw string) string {
	if len(validation.IsDNS1123Subdomain(raw)) == 0 {
		return raw
	}
	return digested(raw, ".-", validation.DNS1123SubdomainMaxLength)
}

// labelName is the same for namespaces, which are single labels.
func labelName(raw string) string {
	if len(validation.IsDNS1123Label(raw)) == 0 {
		return raw
	}
	return digested(raw, "-", validation.DNS1123LabelMaxLength)
}

func digested(raw, punctuation string, most int) string {
	sum := sha256.Sum256([]byte(raw))
	suffix := hex.EncodeToString(sum[:4])
	kept := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.ContainsRune(punctuation, c):
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, raw)
	// Every label of a subdomain begins and ends with a letter or a digit.
	var labels []string
	for label := range strings.SplitSeq(kept, ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	kept = strings.Join(labels, ".")
	if room := most - len(suffix) - 1; len(kept) > room {
		kept = strings.TrimRight(kept[:room], ".-")
	}
	if kept == "" {
		return suffix
	}
	return kept + "-" + suffix
}

// labelValue makes a valid label value: what is not allowed becomes an underscore.
func labelValue(raw string) string {
	if len(validation.IsValidLabelValue(raw)) == 0 {
		return raw
	}
	kept := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '_'
	}, raw)
	kept = kept[:min(len(kept), validation.LabelValueMaxLength)]
	return strings.Trim(kept, "-_.")
}
