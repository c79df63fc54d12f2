//! Headers of delta-encoded integers inside a page, which say how many there are before any is decoded.

/// Checks delta-encoded integers at the start of `bytes`: at most `max` of them. Returns where they end; `None` for anything
/// else.
pub(super) fn end(bytes: &[u8], max: u64) -> Option<usize> {
    let mut at = 0;
    let block = varint(bytes, &mut at)?;
    let minis = varint(bytes, &mut at)?;
    let total = varint(bytes, &mut at)?;
    let first = varint(bytes, &mut at);
    let fits = (128..=1 << 20).contains(&block) && block % 128 == 0;
    if !fits || !(1..=block).contains(&minis) || block % minis != 0 || total > max {
        return None;
    }
    first?;
    let each = block / minis;
    let mut left = total.saturating_sub(1);
    while left > 0 {
        varint(bytes, &mut at)?;
        let widths = bytes.get(at..at.checked_add(minis as usize)?)?;
        at += minis as usize;
        for &width in widths {
            if left > 0 {
                at = at.checked_add((u64::from(width) * each / 8) as usize)?;
            }
            left = left.saturating_sub(each);
        }
    }
    (at <= bytes.len()).then_some(at)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_of_deltas_have_an_end() {
        // 128 values to a block, 4 miniblocks, five values, the first 2; then a block of widths 1, 0, 0, 0.
        let mut bytes = vec![0x80, 0x01, 4, 5, 4, 0, 1, 0, 0, 0];
        bytes.extend([0; 4]);
        assert_eq!(end(&bytes, 5), Some(14));
        assert_eq!(end(&bytes, 4), None);
        assert_eq!(end(&bytes[..13], 5), None);
        // One value needs no block.
        assert_eq!(end(&[0x80, 0x01, 4, 1, 4], 1), Some(5));
        let claims = [0x80, 0x01, 4, 0xff, 0xff, 0xff, 0xff, 0x0f, 4];
        assert_eq!(end(&claims, 1 << 24), None);
    }
}
