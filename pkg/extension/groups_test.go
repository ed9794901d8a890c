package extension_test

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/pkg/extension"
)

// A front proxy sends each group of a user in a separate header. kube-apiserver's limit for headers is 1 MiB.
func TestUsersWithThousandsOfGroupsAreServed(t *testing.T) {
	groups := make(chan int, 1)
	s := start(t, func(c *extension.Config) {
		c.Authorizer = byHeader{deny: func(u user.Info, _ *apirequest.RequestInfo) bool {
			groups <- len(u.GetGroups())
			return false
		}}
	}, pagesOf("a"))
	var headers []string
	for i := range 5000 {
		headers = append(headers, fmt.Sprintf("X-Test-Group: oidc:department-%05d-of-the-company", i))
	}
	s.do(http.MethodGet, "/apis/books.example.com/v1/pages", headers...).wants(t, http.StatusOK, `"name":"a"`)
	if got := <-groups; got != 5000 {
		t.Errorf("the user has %d groups, want 5000", got)
	}
}
