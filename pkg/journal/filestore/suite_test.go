package filestore_test

import (
	"path/filepath"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/journaltest"
)

func TestFileStore(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) func() (journal.Store, error) {
		path := filepath.Join(t.TempDir(), "journal.log")
		return func() (journal.Store, error) { return filestore.Open(t.Context(), path, nil) }
	})
}
