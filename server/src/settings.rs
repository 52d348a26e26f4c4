//! How the values of settings are written.

use agent::server_address::{self, AddressError};

/// Parses a share such as `5%` or `0.05`.
///
/// # Errors
/// Returns an error if the text is neither a percentage nor a fraction, or if the share is not between 0 and 1.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let share = number.trim().parse::<f64>().map(|number| number / scale);
    let good = share.ok().filter(|share| (0.0..=1.0).contains(share));
    good.ok_or_else(|| format!("{text:?} is not a share: write it as 5% or 0.05, from 0% to 100%"))
}

/// Checks the address of a server before anything is sent to it. An empty one counts as none.
///
/// # Errors
/// Returns an error if the text is not an address of a server ([`agent::server_address`]).
pub fn server(text: &str) -> Result<String, AddressError> {
    if text.is_empty() { Ok(String::new()) } else { server_address::parse(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_address_or_not_at_all() {
        assert_eq!(
            (server("http://box:8080"), server("")),
            (Ok("http://box:8080".into()), Ok(String::new()))
        );
        assert_eq!(server("https://box"), Err(AddressError::Tls));
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        assert_eq!((share("5%"), share("0.05"), share("100 %")), (Ok(0.05), Ok(0.05), Ok(1.0)));
        for bad in ["5", "-1%", "five", "", "NaN"] {
            assert!(share(bad).unwrap_err().contains("5% or 0.05"), "{bad}");
        }
    }
}
