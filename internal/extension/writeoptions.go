package extension

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

// writeOptions are the query parameters of a write.
type writeOptions struct {
	dryRun       bool
	fieldManager string
	validation   string // metav1.FieldValidationStrict, Warn or Ignore
}

// maxFieldManager is how long kube-apiserver lets a name of a program be.
const maxFieldManager = 128

func parseWriteOptions(r *http.Request) (writeOptions, error) {
	query := r.URL.Query()
	o := writeOptions{fieldManager: query.Get("fieldManager"), validation: query.Get("fieldValidation")}
	problems := dryRunProblems(query["dryRun"])
	o.dryRun = len(query["dryRun"]) > 0
	if len(o.fieldManager) > maxFieldManager || strings.ContainsFunc(o.fieldManager, func(c rune) bool { return !unicode.IsPrint(c) }) {
		problems = append(problems, field.Invalid(field.NewPath("fieldManager"), o.fieldManager,
			fmt.Sprintf("must be at most %d printable characters", maxFieldManager)))
	}
	known := []string{metav1.FieldValidationIgnore, metav1.FieldValidationStrict, metav1.FieldValidationWarn}
	switch {
	case o.validation == "":
		o.validation = metav1.FieldValidationWarn
	case !slices.Contains(known, o.validation):
		problems = append(problems, field.NotSupported(field.NewPath("fieldValidation"), o.validation, known))
	}
	return o, invalidOptions(problems)
}

func dryRunProblems(values []string) (problems field.ErrorList) {
	if len(values) > 0 && !slices.Equal(slices.Compact(slices.Clone(values)), []string{metav1.DryRunAll}) {
		problems = append(problems, field.NotSupported(field.NewPath("dryRun"), values, []string{metav1.DryRunAll}))
	}
	return problems
}

func invalidOptions(problems field.ErrorList) error {
	if len(problems) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "Options"}, "", problems)
}

// readBody reads a request's body, which the chain has given a limit.
func readBody(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	}
	return data, nil
}

// contentType is the media type of a body, one of accepted. Nothing said means JSON, as everywhere in the API.
func contentType(r *http.Request, accepted ...string) (string, error) {
	said := r.Header.Get("Content-Type")
	if said == "" && accepted[0] == respond.MediaJSON {
		return respond.MediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(said)
	if err == nil && slices.Contains(accepted, media) {
		return media, nil
	}
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("a body of type %q cannot be read here; accepted are: %s", said, strings.Join(accepted, ", ")),
	}}
}

// toJSON turns a YAML body into JSON and leaves a JSON one as it is. twice is a key that came twice.
func toJSON(data []byte, media string) (out []byte, twice error, err error) {
	if media != respond.MediaYAML {
		return data, nil, nil
	}
	if out, err = yaml.YAMLToJSON(data); err != nil {
		return nil, nil, err
	}
	_, twice = yaml.YAMLToJSONStrict(data)
	return out, twice, nil
}
