package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kube-openapi/pkg/handler3"

	"portico.dev/internal/discovery"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/openapi"
	"portico.dev/internal/respond"
	"portico.dev/internal/server"
)

// APIs are the APIs of the extension servers of a front door.
type APIs interface {
	// Proxied returns the handler of a group-version. It returns false if no extension server serves it: objects of the front door
	// itself are never served to users of a cluster.
	Proxied(gv schema.GroupVersion) (dispatch.Handler, bool)
	// Overlay returns the group-versions as they are in the front door's discovery.
	Overlay(gvs []schema.GroupVersion) *discovery.Overlay
	// Document returns the OpenAPI v3 document of a group-version.
	Document(gv schema.GroupVersion) (openapi.Document, bool)
	// OpenAPI serves the documents.
	OpenAPI() http.Handler
}

// groupVersionsOf returns the group-versions of valid names of APIServices.
func groupVersionsOf(names []string) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, name := range names {
		version, group, _ := strings.Cut(name, ".")
		gvs = append(gvs, schema.GroupVersion{Group: group, Version: version})
	}
	return gvs
}

// serveAPIs serves requests for the APIs of the front door's extension servers that a cluster has, and the documents that list them. It
// returns false for other requests.
func (f *Fleet) serveAPIs(w http.ResponseWriter, r *filters.Request) bool {
	m := selected(r.Context()).member
	if len(m.apis) == 0 {
		return false
	}
	if gv, ok := server.GroupVersionOf(r); ok {
		if slices.Contains(m.apis, gv) {
			f.serveAPI(w, r, gv)
			return true
		}
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || identity.Impersonates(r.Header) {
		return false
	}
	return f.serveDocument(w, r, m)
}

func (f *Fleet) serveAPI(w http.ResponseWriter, r *filters.Request, gv schema.GroupVersion) {
	if err := f.admit(r); err != nil {
		respond.Error(w, r.Request, err)
		return
	}
	handler, ok := f.config.APIs.Proxied(gv)
	if !ok {
		respond.Error(w, r.Request, apierrors.NewServiceUnavailable(fmt.Sprintf("no extension server of the front door serves APIService %s.%s, which is in spec.apiServices of Cluster %s",
			gv.Version, gv.Group, selected(r.Context()).name)))
		return
	}
	handler.Serve(w, r)
}

// admit returns nil if the user may make a request that the front door answers itself, or the response. The cluster decides for its
// user. The front door decides for the user that the extension server sees, which r then has, because extension servers may trust
// it to have done so.
func (f *Fleet) admit(r *filters.Request) error {
	if err := selected(r.Context()).member.authorize(r); err != nil {
		return err
	}
	attributes, err := server.AttributesOf(r.Context())
	if err != nil {
		return err
	}
	attributes.User = userForExtensions(r.Context(), r.User)
	c := &f.config.Chain
	if err := server.Authorize(r.Request, authorizer.AuthorizerFunc(f.authorizeExtension), c.UpgradesNeedCreate, attributes, f.log); err != nil {
		return err
	}
	r.User, r.UserName = attributes.User, attributes.User.GetName()
	r.Request = r.WithContext(apirequest.WithUser(r.Context(), r.User))
	return nil
}

// userForExtensions returns the user for extension servers of the front door, with the name of the cluster. A user of the cluster has a
// name that contains that of the cluster, because the front door may have a user with the same name.
func userForExtensions(ctx context.Context, u user.Info) user.Info {
	s := selected(ctx)
	if s.token {
		u = userOfCluster(ctx, u)
	}
	extra := map[string][]string{}
	maps.Copy(extra, u.GetExtra())
	extra[filters.ClusterExtra] = []string{s.name}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// authorizeExtension authorizes requests for extension servers. It is an authorizer.AuthorizerFunc.
func (f *Fleet) authorizeExtension(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := f.config.Chain.Authorizer.Authorize(ctx, a)
	if decision != authorizer.DecisionAllow {
		reason = "the front door, which serves this API for the cluster, requires this right, too"
	}
	return decision, reason, err
}

// serveDocument serves the documents in which group-versions of the front door replace those of the cluster. It returns false for all
// others, and if the cluster does not serve the document to the user.
func (f *Fleet) serveDocument(w http.ResponseWriter, r *filters.Request, m *member) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	group, isGroup := strings.CutPrefix(path, "/apis/")
	described, isOpenAPI := strings.CutPrefix(path, "/openapi/v3/apis/")
	switch {
	case path == "/apis":
		return f.serveDiscovery(w, r, m, path, "")
	case isGroup && slices.ContainsFunc(m.apis, func(gv schema.GroupVersion) bool { return gv.Group == group }):
		return f.serveDiscovery(w, r, m, path, group)
	case path == "/openapi/v3":
		return f.serveIndex(w, r, m)
	case isOpenAPI:
		gv, err := schema.ParseGroupVersion(described)
		if err != nil || !slices.Contains(m.apis, gv) {
			return false
		}
		f.serveOpenAPI(w, r, gv)
		return true
	}
	return false
}

// serveDiscovery serves a group, or the list of groups if group is empty.
func (f *Fleet) serveDiscovery(w http.ResponseWriter, r *filters.Request, m *member, path, group string) bool {
	overlay := f.config.APIs.Overlay(m.apis)
	version, err := overlay.Version()
	if err != nil {
		respond.Error(w, r.Request, err)
		return true
	}
	legacy, legacyErr := discovery.LegacyForm(r.Request)
	x := &cluster.Change{Path: path, Accept: cluster.JSON, IfMissing: group != "", Version: version + " " + legacy.ContentType()}
	aggregated, ok := discovery.AggregatedForm(r.Request)
	switch {
	case r.URL.Path == "/apis" && ok:
		x.Accept, x.Version = cluster.AggregatedJSON, x.Version+" "+aggregated.ContentType()
	case legacyErr != nil:
		respond.Error(w, r.Request, legacyErr)
		return true
	}
	x.Apply = func(document []byte, contentType string) ([]byte, string, error) {
		form := legacy
		if strings.Contains(contentType, "as=APIGroupDiscoveryList") {
			form = aggregated
		}
		if group != "" {
			document, err := overlay.Group(group, document, form)
			return document, form.ContentType(), err
		}
		document, err := overlay.Groups(document, form)
		return document, form.ContentType(), err
	}
	return m.link.ServeChanged(w, r, x)
}

// serveIndex serves the index of the OpenAPI documents.
func (f *Fleet) serveIndex(w http.ResponseWriter, r *filters.Request, m *member) bool {
	urls := map[string]string{} // empty if there is no document
	for _, gv := range m.apis {
		urls["apis/"+gv.String()] = ""
		if d, ok := f.config.APIs.Document(gv); ok {
			urls["apis/"+gv.String()] = d.URL()
		}
	}
	version, err := json.Marshal(urls)
	if err != nil {
		respond.Error(w, r.Request, err)
		return true
	}
	return m.link.ServeChanged(w, r, &cluster.Change{Path: "/openapi/v3", Accept: cluster.JSON, Version: string(version), Apply: func(document []byte, _ string) ([]byte, string, error) {
		changed, err := changeIndex(document, urls)
		return changed, respond.MediaJSON, err
	}})
}

func changeIndex(document []byte, urls map[string]string) ([]byte, error) {
	var index handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(document, &index); err != nil {
		return nil, fmt.Errorf("decode the index of the OpenAPI documents of the cluster: %w", err)
	}
	for path, url := range urls {
		if delete(index.Paths, path); url != "" {
			if index.Paths == nil {
				index.Paths = map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}
			}
			index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: url}
		}
	}
	return json.Marshal(index)
}

// serveOpenAPI serves the OpenAPI document of a group-version of the front door. It redirects within the cluster's path if the document has
// another hash.
func (f *Fleet) serveOpenAPI(w http.ResponseWriter, r *filters.Request, gv schema.GroupVersion) {
	if err := f.admit(r); err != nil {
		respond.Error(w, r.Request, err)
		return
	}
	r.Record.ServedBy = "openapi"
	d, ok := f.config.APIs.Document(gv)
	if hash := r.URL.Query().Get("hash"); ok && hash != "" && hash != d.Hash {
		w.Header().Set("Location", prefixOf(r)+d.URL())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	f.config.APIs.OpenAPI().ServeHTTP(w, r.Request)
}
