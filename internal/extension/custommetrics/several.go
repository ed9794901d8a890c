package custommetrics

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/extension"
)

// contestant is one of the sources of a group, for one question.
type contestant[V any] struct {
	extension.Source
	ask func(ctx context.Context) ([]V, error)
}

// first gives the answer of the first source that knows the metric. A source that knows it and fails is passed over
// for the next one that knows it, with a warning; when there is none, the failure is the answer. unknown is the answer
// when nobody knows the metric, unless somebody is in trouble, who might: then it is 503, because a client may take a
// 404 for final.
func first[V any](ctx context.Context, sources []contestant[V], unknown error) ([]V, error) {
	var failure, trouble error
	for _, s := range sources {
		values, err := s.ask(ctx)
		switch {
		case err == nil:
			return values, nil
		case errors.Is(err, ErrUnknown):
			if err := troubleOf(s.Source); err != nil {
				trouble = errors.Join(trouble, err)
				extension.Warn(ctx, err.Error())
			}
		case blamesClient(err):
			return nil, err
		default:
			extension.Warn(ctx, fmt.Sprintf("%s: %v", s.Name, err))
			if failure == nil {
				failure = fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	switch {
	case failure != nil:
		return nil, failure
	case trouble != nil:
		return nil, apierrors.NewServiceUnavailable(unknown.Error() + "; not every source can say what it has: " + trouble.Error())
	}
	return nil, unknown
}

func troubleOf(s extension.Source) error {
	if s.Trouble == nil {
		return nil
	}
	if err := s.Trouble(); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// blamesClient: what is wrong with the request is wrong for every source.
func blamesClient(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}
