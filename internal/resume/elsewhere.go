// Whether a response of another origin continues a body. A validator says nothing there,
// because two origins may give one entity tag to two versions (RFC 9110 §8.8.1).

package resume

import "net/http"

// A Bridge says how a body can go on at another origin.
type Bridge uint8

const (
	// NoBridge means that it cannot.
	NoBridge Bridge = iota
	// BridgeWhole means that the request brings everything again in any case, and that
	// the response is compared.
	BridgeWhole
	// BridgeDigest means that a range whose response has the digest of the whole
	// representation will do. Its request has no If-Range, because the validator is that
	// of the first origin.
	BridgeDigest
	// BridgeCompare means that everything has to be fetched again, without a Range, and
	// compared.
	BridgeCompare
)

// Bridge returns how the body can go on at another origin now.
func (b *Body) Bridge() Bridge {
	switch {
	case b.compares():
		return BridgeWhole
	case b.partial:
		return NoBridge // the digest and the bytes of the whole are not known
	case b.hasDigest():
		return BridgeDigest
	case b.mayMatch():
		return BridgeCompare
	}
	return NoBridge
}

// knownDigest returns the digest or the checksum of the whole body that the first header
// announced. It is nil if there was none.
func (b *Body) knownDigest() *digest {
	if b.extra == nil || b.extra.sums == nil || b.extra.sums.whole == nil {
		return nil
	}
	return &b.extra.sums.whole.digest
}

// hasDigest reports whether the digest of the whole representation is known. A checksum
// is none, because different bytes may have the same.
func (b *Body) hasDigest() bool {
	d := b.knownDigest()
	return d != nil && !d.isChecksum()
}

// elsewhere checks whether resp, which comes from another origin, continues the body.
func (b *Body) elsewhere(resp *http.Response, f *fields) (continuation, error) {
	if resp.Body == nil || !b.isSameCoding(resp, f) {
		return unfit("it comes from another origin, and is encoded in another way")
	}
	if b.hasDigest() {
		switch d, first := digestOf(f[reprDigest]), b.knownDigest(); {
		case d.name != first.name || d.want != first.want:
			return unfit("it comes from another origin, and does not have the digest of the first response")
		case resp.StatusCode == http.StatusPartialContent:
			return b.continuationBy(resp, f)
		case resp.StatusCode == http.StatusOK && b.pos <= int64(b.left) && lengthOf(resp) == b.end:
			return continuation{end: b.end, total: b.total, stop: b.end, skip: b.pos, same: !b.keeps}, nil
		}
		return unfit("it comes from another origin with status %d", resp.StatusCode)
	}
	if !b.mayMatch() || !b.prints.agrees(printsOf(resp, f)) {
		return continuation{}, errHeader
	}
	return continuation{end: b.end, total: b.total, stop: b.end, skip: b.pos}, nil
}
