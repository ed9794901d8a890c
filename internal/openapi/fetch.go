package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/discovery/remote"
)

const (
	// fetchTimeout is the timeout for one document. Upstream allows a minute.
	fetchTimeout = 20 * time.Second
	// maxRoot is the maximum size of an index that is read from a backend.
	maxRoot = 4 << 20
)

// aggregatorIdentity is kube-aggregator's identity. It has no groups.
var aggregatorIdentity = remote.Identity{User: "system:aggregator"}

// result is the result of one poll for one group-version: a document, nothing if the last one is still valid, or a failure.
type result struct {
	document *Document
	err      error
}

// session is the state that is kept of a backend between polls. Only the backend's Poll uses it.
type session struct {
	fetcher *remote.Fetcher
	backend remote.Backend
	// validators contains, for each group-version with a valid document, the hash in the backend's index or the ETag of the
	// response.
	validators map[schema.GroupVersion]string
	// rootSum is the hash of the last decoded index. hashes contains its entries for the wanted group-versions, rootWanted.
	// Most polls return the same index, which then does not need to be decoded.
	rootSum    [sha256.Size]byte
	rootWanted []schema.GroupVersion
	hashes     map[schema.GroupVersion]string
	// v2 is the ETag of the version 2 document, for the group-versions that were taken from it.
	v2       string
	v2Wanted []schema.GroupVersion
}

// fetchAll fetches the documents of the wanted group-versions. held contains the group-versions with a document; all others
// are fetched without validators.
func (s *session) fetchAll(ctx context.Context, wanted []schema.GroupVersion, held map[schema.GroupVersion]bool) (map[schema.GroupVersion]result, error) {
	for gv := range s.validators {
		if !held[gv] {
			delete(s.validators, gv)
		}
	}
	a, err := s.get(ctx, "/openapi/v3", "", "", maxRoot)
	switch {
	case err != nil:
		return nil, err
	case a.Code == http.StatusNotFound:
		return s.fetchV2(ctx, wanted, held)
	case a.Code != http.StatusOK:
		return nil, fmt.Errorf("get /openapi/v3 from %s: answered %d", s.backend.Name(), a.Code)
	}
	if err := s.readRoot(a.Body, wanted); err != nil {
		return nil, err
	}
	s.v2 = ""
	results := map[schema.GroupVersion]result{}
	for _, gv := range wanted {
		if hash, ok := s.hashes[gv]; ok {
			results[gv] = s.document(ctx, gv, hash)
		}
	}
	return results, nil
}

// readRoot extracts the hashes of the wanted group-versions from a backend's index, unless the index is unchanged.
func (s *session) readRoot(body []byte, wanted []schema.GroupVersion) error {
	sum := sha256.Sum256(body)
	if s.hashes != nil && sum == s.rootSum && slices.Equal(wanted, s.rootWanted) {
		return nil
	}
	s.hashes = nil
	var index root
	if err := json.Unmarshal(body, &index); err != nil {
		return fmt.Errorf("decode the OpenAPI index of %s: %w", s.backend.Name(), err)
	}
	s.rootSum, s.rootWanted, s.hashes = sum, wanted, make(map[schema.GroupVersion]string, len(wanted))
	for _, gv := range wanted {
		if entry, ok := index.Paths[indexPath(gv)]; ok {
			s.hashes[gv] = hashIn(entry.ServerRelativeURL)
		}
	}
	return nil
}

// document fetches one document, unless it is unchanged. It uses only the hash of the URL in the backend's index: the
// backend must not choose the path.
func (s *session) document(ctx context.Context, gv schema.GroupVersion, hash string) result {
	validator := s.validators[gv]
	if hash != "" && validator == hash {
		return result{}
	}
	query := ""
	if hash != "" {
		query = url.Values{"hash": {hash}}.Encode()
		validator = ""
	}
	path := "/openapi/v3/" + indexPath(gv)
	a, err := s.get(ctx, path, query, validator, maxDocument)
	switch {
	case err != nil:
		return result{err: err}
	case a.Code == http.StatusNotModified && validator != "":
		return result{}
	case a.Code != http.StatusOK:
		return result{err: fmt.Errorf("get %s from %s: answered %d", path, s.backend.Name(), a.Code)}
	}
	result := parseDocument(gv, a.Body)
	if result.err == nil {
		s.setValidator(gv, hash, a.ETag)
	}
	return result
}

func (s *session) setValidator(gv schema.GroupVersion, hash, etag string) {
	if s.validators == nil {
		s.validators = map[schema.GroupVersion]string{}
	}
	if s.validators[gv] = hash; hash == "" {
		s.validators[gv] = etag
	}
}

// fetchV2 is fetchAll for a backend without version 3. A backend without version 2 has no description, which is allowed.
func (s *session) fetchV2(ctx context.Context, wanted []schema.GroupVersion, held map[schema.GroupVersion]bool) (map[schema.GroupVersion]result, error) {
	etag := s.v2
	if !slices.Equal(wanted, s.v2Wanted) || slices.ContainsFunc(wanted, func(gv schema.GroupVersion) bool { return !held[gv] }) {
		etag = ""
	}
	a, err := s.get(ctx, "/openapi/v2", "", etag, maxDocument)
	switch {
	case err != nil:
		return nil, err
	case a.Code == http.StatusNotFound, a.Code == http.StatusNotModified && etag != "":
		return nil, nil
	case a.Code != http.StatusOK:
		return nil, fmt.Errorf("get /openapi/v2 from %s: answered %d", s.backend.Name(), a.Code)
	}
	documents, err := fromV2(a.Body, wanted)
	if err != nil {
		return nil, err
	}
	s.validators = nil
	s.v2, s.v2Wanted = a.ETag, wanted
	results := map[schema.GroupVersion]result{}
	for gv, body := range documents {
		results[gv] = parseDocument(gv, body)
	}
	return results, nil
}

func parseDocument(gv schema.GroupVersion, body []byte) result {
	if err := check(body, gv); err != nil {
		return result{err: err}
	}
	document, err := NewDocument(indexPath(gv), body)
	return result{document: &document, err: err}
}

func (s *session) get(ctx context.Context, path, query, etag string, limit int64) (*remote.Answer, error) {
	return s.fetcher.Fetch(ctx, s.backend, remote.Request{
		Path: path, Query: query, ETag: etag, Accept: "application/json",
		As: aggregatorIdentity, Limit: limit, Timeout: fetchTimeout,
	})
}

func hashIn(serverRelativeURL string) string {
	u, err := url.Parse(serverRelativeURL)
	if err != nil {
		return ""
	}
	return u.Query().Get("hash")
}

// publicReason returns the text of an error without information that only logs may contain: transport errors contain pod
// addresses.
func publicReason(err error) string {
	if errors.Is(err, remote.ErrUnreachable) {
		return "the backend's OpenAPI document cannot be fetched"
	}
	return err.Error()
}

// indexPath returns the path of a group-version in the index of version 3.
func indexPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// check rejects a document that is not OpenAPI v3, or that describes paths of a different group-version: a backend must not
// describe the objects of another backend.
func check(body []byte, gv schema.GroupVersion) (err error) {
	defer recoverPanic(&err)
	var document spec3.OpenAPI
	if err := json.Unmarshal(body, &document); err != nil {
		return fmt.Errorf("the OpenAPI document of %s does not parse: %w", gv, err)
	}
	if !strings.HasPrefix(document.Version, "3.") {
		return fmt.Errorf("the OpenAPI document of %s is of version %q, not 3", gv, document.Version)
	}
	if document.Paths == nil || len(document.Paths.Paths) == 0 {
		return fmt.Errorf("the OpenAPI document of %s describes no path", gv)
	}
	root := "/" + indexPath(gv)
	for path := range document.Paths.Paths {
		if path != root && !strings.HasPrefix(path, root+"/") {
			return fmt.Errorf("the OpenAPI document of %s claims %s, which is not under %s", gv, path, root)
		}
	}
	return nil
}

// fromV2 makes version 3 documents for the wanted group-versions from a version 2 document, which describes all of the
// backend's group-versions. Group-versions that it does not describe are not in the result.
//
// The conversion loses features that version 2 cannot express (nullable, oneOf, defaults of references), so every poll
// requests version 3 again.
func fromV2(body []byte, wanted []schema.GroupVersion) (documents map[schema.GroupVersion][]byte, err error) {
	defer recoverPanic(&err)
	var whole spec.Swagger
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the OpenAPI v2 document does not parse: %w", err)
	}
	if !strings.HasPrefix(whole.Swagger, "2.") || whole.Paths == nil {
		return nil, fmt.Errorf("the OpenAPI v2 document is of version %q, not 2, or describes no path", whole.Swagger)
	}
	normalizeForV3(&whole)
	documents = map[schema.GroupVersion][]byte{}
	for _, gv := range wanted {
		part := aggregator.FilterSpecByPathsWithoutSideEffects(&whole, []string{"/" + indexPath(gv) + "/"})
		if len(part.Paths.Paths) == 0 {
			continue
		}
		converted, err := json.Marshal(openapiconv.ConvertV2ToV3(part))
		if err != nil {
			return nil, fmt.Errorf("convert the OpenAPI v2 document of %s: %w", gv, err)
		}
		documents[gv] = pointToComponents(converted)
	}
	return documents, nil
}

// root is the index of version 3, in the format of clients and backends.
type root struct {
	Paths map[string]rootEntry `json:"paths"`
}

type rootEntry struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}
