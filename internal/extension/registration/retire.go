package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"go.uber.org/zap"
)

// retire deletes the APIServices that this keeper wrote for group-versions that are not served any more. One that is
// left behind would make its group unavailable, and with it the discovery that deleting any namespace waits for.
func (k *Registrar) retire(ctx context.Context, r Registration) error {
	serving := r.apiServices()
	gone := slices.DeleteFunc(k.written, func(o Manifest) bool {
		return slices.ContainsFunc(serving, func(s Manifest) bool { return s.String() == o.String() })
	})
	k.written = slices.Concat(serving, gone)
	for _, o := range gone {
		err := k.deleteOurs(ctx, o, r)
		var no *answerError
		if errors.As(err, &no) && no.final() {
			k.config.Logger.Warn("the registration of what is not served any more stays; delete it by hand",
				zap.String("next step", "kubectl delete apiservice "+o.meta("name")), zap.Error(err))
			err = nil
		}
		if err != nil {
			return err
		}
		k.written = slices.DeleteFunc(k.written, func(w Manifest) bool { return w.String() == o.String() })
	}
	return nil
}

// deleteOurs deletes an APIService unless somebody else serves it by now.
func (k *Registrar) deleteOurs(ctx context.Context, o Manifest, r Registration) error {
	text, err := k.send(ctx, http.MethodGet, o, nil, nil)
	var no *answerError
	if errors.As(err, &no) && no.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	var found struct {
		Metadata struct{ UID, ResourceVersion string }
		Spec     struct {
			Service struct{ Namespace, Name string }
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read %s: %w", o, err)
	}
	if found.Spec.Service.Namespace != r.Namespace || found.Spec.Service.Name != r.Service {
		return nil
	}
	// With the version that was looked at: who takes it over in this moment keeps it.
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{
		"uid": found.Metadata.UID, "resourceVersion": found.Metadata.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("encode %s: %w", o, err)
	}
	if _, err := k.send(ctx, http.MethodDelete, o, nil, body); err != nil {
		return err
	}
	k.config.Logger.Info("deleted the registration of what is not served any more", zap.Stringer("object", o))
	return nil
}
