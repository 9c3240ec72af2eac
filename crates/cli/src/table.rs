//! Text tables.

use crate::escape;

/// A heading and rows, aligned. Control characters in cells are escaped.
pub(crate) fn text<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let heading = heading.map(str::to_owned);
    let rows: Vec<[String; N]> = std::iter::once(&heading)
        .chain(rows)
        .map(|row| std::array::from_fn(|column| escape::line(&row[column])))
        .collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_harmless() {
        let rows = [["a".into(), "x\n".into()], ["long".into(), String::new()]];
        assert_eq!(
            super::text(["ONE", "TWO"], &rows),
            "ONE   TWO\na     x␊\nlong\n"
        );
    }
}
