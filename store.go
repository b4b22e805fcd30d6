package jobs

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A store is [Config.Dir], open. All supervisors of this process that name the
// directory share it.
type store struct {
	dir     string
	lock    *os.File
	journal journal
	logs    logDir
	idKey   [16]byte     // ids of earlier hosts must be known as such
	owners  atomic.Int64 // supervisors made so far
	users   int          // guarded by stores.mu

	ready  chan struct{} // closed once it can be used
	failed error         // or why it cannot be; set before that
}

// Names in a store.
const (
	storeLock    = "lock"
	storeJournal = "journal"
	storeKey     = "key"
	storeLogs    = "logs"
	storeResults = "results"
	storeAside   = "quarantine"
)

// stores are the directories that this process has open, or is about to.
var stores struct {
	mu   sync.Mutex // guards open, and holds it back from whoever closes one
	open map[string]*store
}

// openStore opens the directory of a Config. past holds what an earlier host
// left there; aside is where records went that cannot be read, "" if there were
// none. A supervisor that finds the directory open gets neither.
func openStore(cfg *Config) (st *store, past []*pastJob, aside string, err error) {
	path, err := filepath.Abs(cfg.Dir)
	if err == nil {
		err = useDir(path)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, nil, "", err
	}
	st, first, err := enterStore(path)
	if err != nil || !first {
		return st, nil, "", err
	}
	defer close(st.ready)
	if past, aside, err = st.load(cfg); err == nil {
		past, err = st.settle(past, cfg.KillGrace)
	}
	if err != nil {
		st.failed = err
		st.release()
		return nil, nil, "", err
	}
	return st, past, aside, nil
}

// enterStore returns the store of a directory. The first to enter it must make
// it ready; the others wait for that.
func enterStore(path string) (st *store, first bool, err error) {
	stores.mu.Lock()
	if st = stores.open[path]; st != nil {
		st.users++
		stores.mu.Unlock()
		if <-st.ready; st.failed != nil {
			return nil, false, st.failed
		}
		return st, false, nil
	}
	defer stores.mu.Unlock()
	lock, err := lockFile(filepath.Join(path, storeLock))
	if err != nil {
		return nil, false, err
	}
	if stores.open == nil {
		stores.open = make(map[string]*store)
	}
	st = &store{dir: path, lock: lock, users: 1, ready: make(chan struct{})}
	stores.open[path] = st
	return st, true, nil
}

// release closes the directory when its last supervisor is closed.
func (st *store) release() {
	if st == nil {
		return
	}
	stores.mu.Lock()
	defer stores.mu.Unlock()
	if st.users--; st.users > 0 && st.failed == nil {
		return
	}
	delete(stores.open, st.dir)
	st.journal.close()
	unlockFile(st.lock)
}

// load reads what is there.
func (st *store) load(cfg *Config) (past []*pastJob, aside string, err error) {
	for _, name := range []string{storeLogs, storeResults, storeAside} {
		if err := useDir(filepath.Join(st.dir, name)); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := st.loadKey(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", storeKey, err)
	}
	st.logs = logDir{path: filepath.Join(st.dir, storeLogs), budget: cfg.LogBudget, age: cfg.LogAge, live: make(map[string]int64)}
	st.logs.count()
	st.journal = journal{path: filepath.Join(st.dir, storeJournal), sync: cfg.Sync}
	data, err := readJournal(st.journal.path)
	if err != nil {
		// A directory, a link, a device: what it is matters to nobody here.
		if aside, err = st.putAside(st.journal.path); err != nil {
			return nil, "", err
		}
	}
	past, bad := parseRecords(data)
	if len(bad) > 0 {
		if aside, err = st.keepAside(bad); err != nil {
			return nil, "", err
		}
	}
	return past, aside, nil
}

// loadKey reads the secret that ids are made with, or makes one.
func (st *store) loadKey() error {
	path := filepath.Join(st.dir, storeKey)
	if f, err := openOwn(path, os.O_RDONLY); err == nil {
		defer f.Close()
		var digits [2*len(st.idKey) + 1]byte
		n, _ := f.Read(digits[:])
		if key, err := hex.DecodeString(strings.TrimSpace(string(digits[:n]))); err == nil && len(key) == len(st.idKey) {
			copy(st.idKey[:], key)
			return nil
		}
	}
	if _, err := os.Lstat(path); err == nil {
		if _, err := st.putAside(path); err != nil {
			return err
		}
	}
	rand.Read(st.idKey[:]) // never fails
	f, err := openOwn(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%x\n", st.idKey)
	return errors.Join(err, f.Close())
}

// putAside moves what should not be there to the quarantine.
func (st *store) putAside(path string) (aside string, err error) {
	aside = st.asidePath(filepath.Base(path))
	return aside, os.Rename(path, aside)
}

// keepAside writes lines that are no records to the quarantine.
func (st *store) keepAside(lines [][]byte) (aside string, err error) {
	aside = st.asidePath(storeJournal)
	f, err := openOwn(aside, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		_, writeErr := f.Write(append(line[:len(line):len(line)], '\n'))
		err = errors.Join(err, writeErr)
	}
	return aside, errors.Join(err, f.Close())
}

func (st *store) asidePath(name string) string {
	return filepath.Join(st.dir, storeAside, name+"-"+time.Now().UTC().Format("20060102T150405.000000000"))
}

// resultPath is where the result of a job waits to be collected.
func (st *store) resultPath(id string) string { return filepath.Join(st.dir, storeResults, id) }

// saveResult keeps the result of a job that has ended.
func (st *store) saveResult(id string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	os.Remove(st.resultPath(id)) // of a host that died before it was on record
	f, err := openOwn(st.resultPath(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && st.journal.sync {
		err = errors.Join(f.Sync(), syncDir(filepath.Dir(f.Name())))
	}
	return errors.Join(err, f.Close())
}
