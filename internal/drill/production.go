package drill

import (
	"fmt"
	"regexp"
	"strings"
)

// productionMarks are words in names of clusters that somebody depends on. As whole words: "products" and "delivery" are none.
var productionMarks = regexp.MustCompile(`(^|[^a-z])(prod|prd|production|live|prodlike|customer|customers)([^a-z]|$)`)

// LooksLikeProduction is why a target should not be drilled without a second thought; empty when nothing says so. It
// reads the names that people gave: of the context, the cluster, the user and the server.
func LooksLikeProduction(names ...string) string {
	for _, name := range names {
		if productionMarks.MatchString(strings.ToLower(name)) {
			return fmt.Sprintf("%q looks like production", name)
		}
	}
	return ""
}
